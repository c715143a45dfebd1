"""Mutants as rules: data of the same type as rules written by hand, with a certificate of their own.

A rule of this kind holds at one program and one shape, that at which it was proved. Its weights are variables: what is
proved holds for all weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

import onnx

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.equivalence import PROOF_SEED, Disagreement, RandomTrials, prove
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.mutant_rules.program_json import (
    MalformedMutantError,
    checked,
    integer,
    integers,
    program_from_json,
    program_to_json,
)
from graph_rewrite.mutate.mutant_rules.source import Source, read_match, source_of
from graph_rewrite.mutate.onnx_form import as_graph, build
from graph_rewrite.mutate.program import HEAVY, Subprogram, TensorProgram
from graph_rewrite.mutate.summary import summary
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Pattern
from graph_rewrite.rewriting.replacement import ReplacementBuilder
from graph_rewrite.rewriting.rule import SIGNED_ZERO, Refusal, Rule

FORMAT = 1
"""Version of a mutant as data, and of what it means."""
ORIGIN = "mutant"
_MOST_WORK = 2 * 10**10
"""Multiplications of two programs that are proved equal again when they are read."""
_MOST_ELEMENTS = 2**29
"""Elements of all their values."""
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


class MutantRule(Rule):
    """A mutant that is proved equal to its original, as a rule.

    Args:
        source: the operators of the original, as a pattern.
        original: what they compute; its inputs are the pattern's variables x0, x1, ...
        target: the mutant with its repair.
        shapes: the shapes of the inputs at which the two are equal.
        dtype: the element type of the inputs, an `onnx.TensorProto.DataType`.
        constants: inputs that must be known before run time.
        certificate: how equality was proved, and what was repaired, as plain values.
    """

    family, origin = "mutants", ORIGIN
    # Elements are summed in another order, and zeros join the sums: only ordinary numbers are sure to stay.
    lossy = frozenset({SIGNED_ZERO, "NaN and infinities", "huge", "denormal"})

    def __init__(
        self,
        source: Source,
        original: TensorProgram,
        target: TensorProgram,
        shapes: tuple[Shape, ...],
        dtype: int,
        constants: frozenset[int],
        certificate: Mapping[str, Any],
    ) -> None:
        self.operators, self.original, self.mutant = source, original, target
        self.shapes, self.dtype, self.constants, self.certificate = shapes, dtype, constants, certificate

    @cached_property
    def name(self) -> str:
        heavy = next((s.op for s in self.original.steps if s.op in HEAVY), "layout")
        return f"Mutant{heavy.capitalize()}{self.digest[:8]}"

    @property
    def equation(self) -> str:
        """Return both sides in one line: their operators, with the shapes of what they read."""
        return f"{summary(self.original, self.shapes)} = {summary(self.mutant, self.shapes)}"

    @cached_property
    def digest(self) -> str:
        """Return a digest of the rule's data without its certificate, and of the version of what they mean."""
        return digest("mutant", FORMAT, json.dumps(self._data(), sort_keys=True))

    @cached_property
    def pattern(self) -> Pattern:
        return self.operators.pattern(len(self.shapes), self.constants)

    @cached_property
    def embedded(self) -> Mapping[str, Any]:
        """Return the rule as plain values, for the recording of a result that uses it."""
        return {"format": FORMAT, "name": self.name, **self._data(), "certificate": dict(self.certificate)}

    def _data(self) -> dict[str, Any]:
        return {
            "operators": self.operators.to_json(), "shapes": [list(shape) for shape in self.shapes],
            "dtype": self.dtype, "constants": sorted(self.constants), "original": program_to_json(self.original),
            "mutant": program_to_json(self.mutant),
        }  # fmt: skip

    def check(self, m: Match, *variables: Any) -> Refusal | None:
        refs = m.refs[: len(self.shapes)]
        for ref, shape in zip(refs, self.shapes, strict=True):
            if ref.shape != shape:
                return Refusal(f"it is proved for an input of shape {list(shape)}, not {list(ref.shape)}")
            if ref.dtype != self.dtype:
                return Refusal("it is proved for elements of another type")
        found = read_match(self.operators, len(self.shapes), m)
        if isinstance(found, Refusal):
            return found
        return None if found == self.original else Refusal("the operators have other attributes than those proved")

    def target(self, op: ReplacementBuilder, m: Match, *variables: Any) -> Any:
        return build(self.mutant, op, list(m.refs[: len(self.shapes)]))

    def cases(self) -> Iterator[Graph]:
        """Yield a graph in which the rule applies, if the steps of the original are built as the operators matched."""
        yield as_graph(self.original, self.shapes, constants=self.constants)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MutantRule:
        """Return the rule of plain values, which may come from anywhere: its equality is proved again.

        Raises:
            MalformedMutantError: data of another format or form, or two programs that are not equal.
        """
        rule = cls._named(values)
        if reason := _refuted(rule.original, rule.mutant, rule.shapes):
            raise MalformedMutantError(f"the mutant {rule.name} is refused: {reason}")
        return rule

    @classmethod
    def certified(cls, values: Mapping[str, Any]) -> MutantRule:
        """Return the rule of plain values that come with RewriteGym. The proof in its certificate counts: the digest
        beside it tells that nothing has changed since.

        Raises:
            MalformedMutantError: data of another format or form, or another digest.
        """
        rule = cls._named(values)
        if (rule.certificate.get("verdict"), rule.certificate.get("digest")) != ("proved", rule.digest):
            raise MalformedMutantError(f"the mutant {rule.name} is not the one that its certificate is for")
        return rule

    @classmethod
    def _named(cls, values: Mapping[str, Any]) -> MutantRule:
        if not isinstance(values, Mapping) or values.get("format") != FORMAT:
            raise MalformedMutantError(f"not a mutant of format {FORMAT}: search again for it")
        rule = checked("data", lambda: cls._read(values))
        if values.get("name") != rule.name:
            raise MalformedMutantError(f"the mutant {values.get('name')} has changed since it was recorded")
        return rule

    @classmethod
    def _read(cls, values: Mapping[str, Any]) -> MutantRule:
        shapes = tuple(map(integers, values["shapes"]))
        original, target = program_from_json(values["original"]), program_from_json(values["mutant"])
        constants, dtype = frozenset(integers(values["constants"])), integer(values["dtype"])
        source = Source.from_json(values["operators"], len(shapes))
        counts = {original.count, target.count, len(shapes)}
        if len(counts) > 1 or dtype not in _FLOATS or not constants <= set(range(len(shapes))):
            raise ValueError("its sides have different inputs")
        if len(original.outputs) != len(source.outputs) or not isinstance(values["certificate"], dict):
            raise ValueError("its sides have different outputs, or it has no certificate")
        return cls(source, original, target, shapes, dtype, constants, values["certificate"])


def mutant_rule(
    graph: Graph,
    sub: Subprogram,
    target: TensorProgram,
    found: Mapping[str, Any] | None = None,
    proof: Disagreement | None = None,
) -> MutantRule | Refusal:
    """Return a mutant that is equal everywhere as a rule. Equality is proved at inputs of its own.

    Args:
        graph: the graph that the subprogram is a part of.
        sub: the subprogram.
        target: the mutant with its repair.
        found: what the certificate says beside the proof, such as the boxes and the repair.
        proof: the proof at the real shapes by the inputs of `PROOF_SEED`, where there is one; it is not made again.

    Returns:
        The rule; a Refusal where the two are not equal at some position, or have inputs of several types.
    """
    types = [graph.types[value] for value in sub.inputs]
    dtypes = {type.dtype for type in types if type is not None}
    if len(dtypes) != 1 or None in types:
        return Refusal("the inputs have elements of several types")
    finding = proof or prove(RandomTrials(sub.program, sub.shapes, seed=PROOF_SEED), target)
    if finding is None or not finding.exact:
        return Refusal("the mutant is not equal everywhere")
    figures = {k: v for k, v in finding.to_json().items() if k not in ("boxes", "share_wrong")}
    certificate = {"verdict": "proved", **(found or {}), "proof": {**figures, "seed": PROOF_SEED}}
    return MutantRule(source_of(graph, sub), sub.program, target, sub.shapes, dtypes.pop(), sub.constants, certificate)


def read_mutant_rules(entries: Iterable[Mapping[str, Any]]) -> tuple[MutantRule, ...]:
    """Return the rules of plain values, as recordings embed them.

    Raises:
        MalformedMutantError: one of them is no mutant, or its proof fails.
    """
    return tuple(MutantRule.from_json(entry) for entry in entries)


@lru_cache(maxsize=256)
def _refuted(original: TensorProgram, target: TensorProgram, shapes: tuple[Shape, ...]) -> str:
    """Return why two programs are not known to be equal; empty where a proof finds that they are."""
    try:
        first, second = types_of(original, shapes), types_of(target, shapes)
        if [first[v].shape for v in original.outputs] != [second[v].shape for v in target.outputs]:
            return "its two sides have outputs of different shapes"
        types = [*first, *second]
        work = work_of(original, shapes) + work_of(target, shapes)
        if work > _MOST_WORK or sum(value.size for value in types) > _MOST_ELEMENTS:
            return "it is too large to be proved again"
        finding = prove(RandomTrials(original, shapes, seed=PROOF_SEED), target)
    except (DoesNotFit, LayoutError) as error:
        return str(error)
    return "" if finding is not None and finding.exact else "its two sides are not equal everywhere"
