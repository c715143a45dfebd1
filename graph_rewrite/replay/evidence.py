"""Evidence of a site: all by which it is recognised in another graph, from the most to the least specific."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import text_digest
from graph_rewrite.replay.addresses import Addresses
from graph_rewrite.replay.fingerprint import constant_token, downstream, node_token, type_token, upstream
from graph_rewrite.rewriting.body_sites import BodySite
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.sites import Site


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """A site as it is recorded. No field depends on weights."""

    where: str
    """Name of the site that a person finds in the original file."""
    roots: tuple[str, ...]
    """Addresses of the values that the rewrite computes anew."""
    nodes: tuple[str, ...]
    """Addresses of the matched nodes, by their first outputs, in the order of the pattern."""
    bound: str
    """Digest of the addresses that the pattern's variables are bound to."""
    source: str
    """Digest of the matched operators with the types of their operands and results."""
    shape: str
    """The same without the sizes of dimensions."""
    result: str
    """Digest of the inserted operators, without the sizes of dimensions."""
    above: str
    """Digest of all that the roots are computed by, without the sizes of dimensions."""
    below: str
    """Digest of all that uses the roots, without the sizes of dimensions."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SiteRecord:
        """Return the record of plain values.

        Raises:
            UserError: something is missing or of another kind.
        """
        found: dict[str, Any] = {}
        for field in fields(cls):
            value = values.get(field.name)
            if field.name in ("roots", "nodes"):
                if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                    raise UserError(f"the entry {field.name!r} of a site must be a list of texts")
                found[field.name] = tuple(value)
            elif isinstance(value, str):
                found[field.name] = value
            else:
                raise UserError(f"the entry {field.name!r} of a site must be a text")
        return cls(**found)


class Surroundings:
    """A graph as sites are recognised in it: addresses, and digests that are computed when first asked for."""

    def __init__(self, graph: Graph, addresses: Addresses) -> None:
        self.graph, self.addresses = graph, addresses

    @cached_property
    def above(self) -> dict[int, str]:
        """Digests of what each value is computed by, of any size."""
        return upstream(self.graph, any_size=True)

    @cached_property
    def below(self) -> dict[int, str]:
        """Digests of what uses each value, of any size."""
        return downstream(self.graph)

    def roots(self, site: Site) -> tuple[str, ...]:
        """Return the addresses of the values that a site's rewrite computes anew."""
        return self.addresses.of_all(site.match.root_values)

    def nodes(self, site: Site) -> tuple[str, ...]:
        """Return the addresses of the matched nodes."""
        return self.addresses.of_all(node.outputs[0] for node in site.match.nodes)

    def bound(self, site: Site) -> str:
        """Return a digest of what the pattern's variables are bound to."""
        if isinstance(site, BodySite):
            return _inside(site, lambda inner, one: " ".join((*inner.nodes(one), inner.bound(one))))
        return text_digest([self._operand(ref) for ref in site.match.refs])[:16]

    def source(self, site: Site, *, any_size: bool = False) -> str:
        """Return a digest of the matched operators with the types of their operands and results."""
        if isinstance(site, BodySite):
            return _inside(site, lambda inner, one: inner.source(one, any_size=any_size))
        texts, constants = [site.rule.name], self.graph.constants
        for node in site.match.nodes:
            texts.append(node_token(node))
            for value in node.inputs:
                if value is None:
                    texts.append("-")
                elif value in constants:
                    texts.append(constant_token(site.types[value], constants[value], node, any_size))
                else:
                    texts.append(type_token(site.types[value], any_size))
            texts += [type_token(site.types[value], any_size) for value in node.outputs]
        return text_digest(texts)[:16]

    def result(self, site: Site) -> str:
        """Return a digest of the inserted operators, of any size."""
        if isinstance(site, BodySite):
            return _inside(site, lambda inner, one: inner.result(one))
        texts: list[str] = []
        for node in site.replacement.nodes:
            texts += [node.domain, node.op, *(_attachment(ref) for ref in node.inputs)]
        return text_digest([*texts, "outputs", *map(_attachment, site.replacement.outputs)])[:16]

    def above_roots(self, site: Site) -> str:
        """Return a digest of all that the roots of a site are computed by."""
        return text_digest([self.above[value] for value in site.match.root_values])[:16]

    def below_roots(self, site: Site) -> str:
        """Return a digest of all that uses the roots of a site."""
        return text_digest([self.below[value] for value in site.match.root_values])[:16]

    def where(self, site: Site) -> str:
        """Return the name of a site that a person finds in the original file."""
        return self.addresses.where(site.match.root_values[0]) if site.name.startswith("#") else site.name

    def record(self, site: Site) -> SiteRecord:
        """Return all evidence of a site."""
        return SiteRecord(
            self.where(site) or site.name, self.roots(site), self.nodes(site), self.bound(site), self.source(site),
            self.source(site, any_size=True), self.result(site), self.above_roots(site), self.below_roots(site),
        )  # fmt: skip

    def _operand(self, bound: Any) -> str:
        if bound is None:
            return "-"
        if isinstance(bound, tuple):
            return ",".join(map(self._operand, bound))
        if bound.constant is not None:
            return "const"
        return "const" if bound.external is None else self.addresses.of(bound.external)


def _inside(site: BodySite, told: Callable[[Surroundings, Site], str]) -> str:
    """Return a digest of what is told of the rewrites inside a body, which has addresses of its own."""
    body = site.inner.graph
    inner = Surroundings(body, Addresses(body))
    return text_digest([site.attribute, site.inner.kind, *(told(inner, one) for one in site.inner.sites)])[:16]


def _attachment(ref: Ref | None) -> str:
    if ref is None:
        return "-"
    if ref.node >= 0:
        return f"n{ref.node}.{ref.index}"
    kind = "value" if ref.constant is None else "const"
    return f"{kind} {type_token(ref.type, True)}"
