"""Templates: what a rule has built at one match, for all matches of the same structure.

Convolutions of the same shapes get the same operators from Winograd's algorithm, over other weights. Where a rule says
that its target reads structure alone (`Rule.by_structure`), a second replacement is not built operator by operator:
the first one serves, with the operands of the other match, and with its constants folded anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graph_rewrite.operators.folding import fold
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Folded, Ref, Replacement, ReplacementBuilder, ReplacementNode
from graph_rewrite.rewriting.rule import Rule

MOST_TEMPLATES = 256
"""Templates that are kept; the oldest goes first. One of many channels holds up to 1 MB of literal constants."""

Source = Ref | int | None
"""An operand: a literal constant or a result of another node, the number of a value of the match or of a fold, or one
that is left out."""


@dataclass(frozen=True, slots=True)
class Template:
    """A replacement with places for the operands of a match, and for the constants that are folded from them."""

    opset: int
    folds: tuple[tuple[Folded, tuple[Source, ...]], ...]
    """Folds of constants of the match, and their operands."""
    nodes: tuple[tuple[ReplacementNode, tuple[Source, ...] | None], ...]
    """Nodes, and the operands of those that read a value of the match or a fold."""
    outputs: tuple[Source, ...]
    equal: tuple[int, ...]
    """For each fold's result the first that has the same contents: equal operands make one operator of two."""
    literals: frozenset[str]
    """Digests of the other constants."""

    def at(self, operands: Sequence[Ref]) -> Replacement | None:
        """Return the replacement for other operands; None where constants are equal that were not in the first
        replacement, or the other way round."""
        values = list(operands)
        for folded, sources in self.folds:
            inputs = [_of(source, values) for source in sources]
            constants = [None if ref is None else ref.constant for ref in inputs]
            results = fold(folded.op, folded.domain, folded.attrs, constants, folded.types, self.opset)
            values += [Ref(constant.type, constant=constant) for constant in results]
        digests = [ref.key for ref in values[len(operands) :]]
        if _equal(digests) != self.equal or not self.literals.isdisjoint(digests):
            return None
        nodes = tuple([
            node if sources is None else ReplacementNode(
                node.op, node.domain, node.attrs, tuple([_of(source, values) for source in sources]), node.types,
                node.signature,
            ) for node, sources in self.nodes
        ])  # fmt: skip
        return Replacement(nodes, tuple([ref for source in self.outputs if (ref := _of(source, values)) is not None]))


class Templates:
    """Keeps templates, for rules that allow it (`Rule.by_structure`), by rule and structure of the match."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Template | None] = {}

    def replacement(self, rule: Rule, match: Match) -> Replacement | None:
        """Return what a rule builds at a match; None where that is not known."""
        template = self._kept.get(structure_of(rule, match))
        return None if template is None else template.at(_operands(match))

    def keep(self, rule: Rule, match: Match, op: ReplacementBuilder, replacement: Replacement) -> None:
        """Keep what a rule has built at a match by `op`."""
        while len(self._kept) >= MOST_TEMPLATES:
            del self._kept[next(iter(self._kept))]
        self._kept[structure_of(rule, match)] = template_of(_operands(match), op, replacement)


def template_of(operands: Sequence[Ref], op: ReplacementBuilder, replacement: Replacement) -> Template | None:
    """Return a template of a replacement; None where it reads other values of the graph, or holds a rewritten body, or
    where a literal happens to equal what was folded.

    Args:
        operands: values of the match.
        op: what built the replacement.
    """
    numbers = {ref.key: number for number, ref in enumerate(operands)}
    folds, results = [], list[Ref]()
    for folded in op.folds:
        sources = _sources(folded.inputs, numbers)
        if any(isinstance(source, int) for source in sources):
            folds.append((folded, sources))
            for result in folded.results:
                numbers.setdefault(result.key, len(operands) + len(results))
                results.append(result)
    nodes = [(node, _sources(node.inputs, numbers)) for node in replacement.nodes]
    outputs = _sources(replacement.outputs, numbers)
    digests, made = [ref.key for ref in results], set(map(id, results))
    constants = (*op.constants, *(ref for ref in replacement.outputs if ref.is_const and ref.external is None))
    literals = frozenset(ref.key for ref in constants if id(ref) not in made)
    read = [source for sources in (outputs, *(of for _, of in (*folds, *nodes))) for source in sources]
    if (
        not literals.isdisjoint(digests)
        or any(isinstance(source, Ref) and source.external is not None for source in read)
        or any(node.rewritten is not None for node in replacement.nodes)
    ):
        return None
    kept = tuple((node, sources if any(isinstance(s, int) for s in sources) else None) for node, sources in nodes)
    return Template(op.opset, tuple(folds), kept, outputs, _equal(digests), literals)


def structure_of(rule: Rule, match: Match) -> tuple[Any, ...]:
    """Return what a target may depend on that reads structure alone: operators with their attributes, how values
    connect them, the types of these, and which are constants."""
    graph, numbers = match.graph, dict[int, int]()

    def value(one: int | None) -> Any:
        if one is None:
            return None
        number = numbers.setdefault(one, len(numbers))
        return number, graph.types[one], one in graph.constants

    # A signature tells no default from what is left out, but a target may copy what is spelled out.
    nodes = tuple([
        (node.signature, tuple(node.attrs), tuple(map(value, node.inputs)), tuple(map(value, node.outputs)))
        for node in match.nodes
    ])  # fmt: skip
    return rule, match.opset, nodes, tuple([None if ref is None else value(ref.external) for ref in _flat(match.refs)])


def _operands(match: Match) -> list[Ref]:
    """Return the values that the variables of a match stand for, each once."""
    return list({ref.external: ref for ref in _flat(match.refs) if ref is not None}.values())


def _flat(refs: Iterable[Any]) -> list[Ref | None]:
    return [one for ref in refs for one in (ref if isinstance(ref, tuple) else (ref,))]


def _sources(refs: Iterable[Ref | None], numbers: dict[str, int]) -> tuple[Source, ...]:
    return tuple([None if ref is None else numbers.get(ref.key, ref) for ref in refs])


def _of(source: Source, values: Sequence[Ref]) -> Ref | None:
    return values[source] if isinstance(source, int) else source


def _equal(digests: Sequence[str]) -> tuple[int, ...]:
    first: dict[str, int] = {}
    return tuple([first.setdefault(digest, number) for number, digest in enumerate(digests)])
