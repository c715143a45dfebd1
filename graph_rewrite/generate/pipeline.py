"""The generator from operators to substitutions: enumerate, pair, test, prune, verify (TASO, SOSP'19, sections 2, 3).

Every step's result depends on operators, number of operators and seed only. Finished parts lie in a state folder, so
that a run that was interrupted goes on from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graph_rewrite.generate.expressions import Equation, Expressions, from_substitution, operators, to_substitution
from graph_rewrite.generate.families import families
from graph_rewrite.generate.prune import (
    Implication,
    Needed,
    is_rearrangement,
    reads_the_same,
    renaming_groups,
    simplicity,
    without_common_subgraphs,
    without_renamings,
)
from graph_rewrite.generate.work import GenerationSettings, Progress, Verdict, Workers, paired_family, verdicts
from graph_rewrite.terms.conditions import condition_holds
from graph_rewrite.terms.json_form import to_json
from graph_rewrite.terms.semantics import P, TermType, output_types
from graph_rewrite.terms.small_shapes import small_shapes
from graph_rewrite.terms.substitution import INPUT, SIGNATURES, Side, Substitution

QUICK_DIM = 2
"""Largest dimension of the shapes over which equations are tested while they are pruned."""
FULL_DIM = 3
"""Largest dimension of the shapes over which those that remain are verified. Certificates go further."""
SAMPLES = 6
"""Shapes under which the steps between the sides of an implied equation must have types."""
SAME_AS_RELU = ("sigmoid", "tanh")
COPIED = 2
"""Operators of the smaller side of an equation that is copied with other activations, at most."""
FORMAT = 1
"""The format of the file."""


def generate(
    plan: GenerationSettings, state: Path, *, processes: int = 1, progress: Progress = lambda step, done, of: None
) -> dict[str, Any]:
    """Carry out a plan. Returns the content of the file: seed, operators, table of what each step left, substitutions.

    Args:
        plan: operators, number of operators, seed.
        state: folder for finished parts; created where it is missing.
        processes: that work side by side. The result does not depend on it.
        progress: is told how far the run is.
    """
    folder = state / plan.key
    folder.mkdir(parents=True, exist_ok=True)
    every = families(plan.ops)
    with Workers(processes) as workers:
        tasks = [(plan, number, folder) for number in range(len(every))]
        found = []
        for paired in workers.map(paired_family, tasks):
            found.append(paired)
            progress("families of operators", len(found), len(tasks))
        tested = sorted({equation for paired in found for equation in paired.equations}, key=simplicity)
        table = {
            "graphs": sum(paired.graphs for paired in found),
            "pairs of graphs with equal fingerprints": sum(paired.pairs for paired in found),
            "equations up to names": sum(paired.distinct for paired in found),
            "after further tests": len(tested),
        }
        return _finish(plan, tested, table, workers, progress)


def to_text(result: dict[str, Any]) -> str:
    """The file's text: JSON, one rule a line, in the form that `graph_rewrite.rules.substitutions.rule_files` reads."""
    listed = ("rules", "refused")
    head = json.dumps({key: value for key, value in result.items() if key not in listed}, indent=1)
    parts = [f' "{key}": [\n' + ",\n".join(map(json.dumps, result[key])) + "\n]" for key in listed]
    return head[:-2] + ",\n" + ",\n".join(parts) + "\n}\n"


def _finish(
    plan: GenerationSettings, tested: list[Equation], table: dict[str, int], workers: Workers, progress: Progress
) -> dict[str, Any]:
    verifier = _Verifier(plan, workers, progress)
    general, reduced = verifier.reduce(tested)
    table["input renaming"], table["common subgraph"] = len(general), len(reduced)
    holding = {equation: verifier.verdicts[equation] for equation in reduced}
    kept, refuted = _independent(plan, holding, workers, progress)
    table["implied by others"] = len(kept)
    equations = [to_substitution(equation, verdict.conditions) for equation, verdict in kept.items()]
    equations += [copy for name in SAME_AS_RELU if {"relu", name} <= set(plan.ops) for copy in _with(equations, name)]
    table["with other activations"] = len(equations)
    rules = [rule for equation in equations for rule in directions(equation)]
    table["rules, one per direction"] = len(rules)
    tested_before = set(tested)
    refuted += [(e, v) for e, v in verifier.verdicts.items() if e in tested_before and not v.holds]
    ops = "all" if plan.ops == tuple(SIGNATURES) else ",".join(plan.ops)
    return {
        "format": FORMAT,
        "origin": "generated",
        "family": "generated",
        "made_by": f"rewritegym rules generate --ops {ops} --max-ops {plan.max_ops} --seed {plan.seed}",
        "seed": plan.seed,
        "p": P,
        "operators": list(plan.ops),
        "max_ops": plan.max_ops,
        "table": table,
        "rules": [{"name": name_of(rule), **to_json(rule)} for rule in rules],
        "refused": [_refused(equation, verdict) for equation, verdict in refuted],
    }


def directions(equation: Substitution) -> list[Substitution]:
    """The directions in which an equation can be applied: its pattern ends in operators, and the result reads no other
    inputs. Where reading it backwards is the same rule, there is one."""
    found = []
    for rule in (equation, equation.reversed):
        pattern_ends = [o.node != INPUT and rule.source.terms[o.node].inputs for o in rule.source.outputs]
        if all(pattern_ends) and set(rule.target.inputs) <= set(rule.source.inputs):
            found.append(rule)
    return found[:1] if len(found) == 2 and reads_the_same(from_substitution(equation)) else found


def name_of(rule: Substitution) -> str:
    """Names a rule by its operators and its content, whatever others there are."""
    content = hashlib.blake2b(str((rule, rule.conditions)).encode(), digest_size=4).hexdigest()
    root = rule.source.terms[rule.source.outputs[0].node].op
    return f"Generated{root.capitalize()}{content.upper()}"


def _refused(equation: Equation, verdict: Verdict) -> dict[str, str]:
    substitution = to_substitution(equation)
    return {"name": name_of(substitution), "equation": str(substitution), "reason": verdict.derivation.reason}


@dataclass(slots=True)
class _Verifier:
    """Tells which equations hold over the smaller shapes, and remembers it."""

    plan: GenerationSettings
    workers: Workers
    progress: Progress
    verdicts: dict[Equation, Verdict] = field(default_factory=dict)

    def needed(self, equations: Iterable[Equation], step: str = "smaller equations") -> Needed:
        """Conditions of those equations that hold."""
        asked = list(equations)
        new = [equation for equation in dict.fromkeys(asked) if equation not in self.verdicts]
        found = verdicts(new, QUICK_DIM, self.plan.seed, self.workers, step, self.progress)
        self.verdicts.update(zip(new, found, strict=True))
        return {e: (self.verdicts[e].conditions, self.verdicts[e].given) for e in asked if self.verdicts[e].holds}

    def reduce(self, tested: Iterable[Equation]) -> tuple[list[Equation], list[Equation]]:
        """Equations that are no renaming of others, and what is left of them without common subgraphs.

        Those left are verified. Where one fails, or needs conditions, what it had left out is looked at again.
        """
        open_ = list(tested)
        while True:
            general = self._general(open_)
            reduced = self._general(without_common_subgraphs(general, self.needed))
            new = [equation for equation in reduced if equation not in self.verdicts]
            self.needed(new, "verification")
            refuted = {equation for equation in reduced if not self.verdicts[equation].holds}
            if not refuted and not any(self.verdicts[equation].conditions for equation in new):
                return general, reduced
            open_ = [equation for equation in open_ if equation not in refuted]

    def _general(self, equations: list[Equation]) -> list[Equation]:
        known = self.needed(equation for equation in equations if equation in self.verdicts)
        tasks = [(group, {e: known[e] for e in group if e in known}) for group in renaming_groups(equations)]
        found: list[Equation] = []
        for group in self.workers.map(without_renamings, tasks):
            found += group
            self.progress("input renaming", len(found), len(equations))
        return sorted(found, key=simplicity)


def _independent(
    plan: GenerationSettings, holding: dict[Equation, Verdict], workers: Workers, progress: Progress
) -> tuple[dict[Equation, Verdict], list[tuple[Equation, Verdict]]]:
    """Equations that no others imply, verified over the larger shapes; and those that fail there.

    Where one fails, or needs other conditions, what was left out because of it is looked at again.
    """
    full: dict[Equation, Verdict] = {}
    while True:
        known = {**holding, **full}
        candidates = [e for e in sorted(holding, key=simplicity) if known[e].holds and directions(to_substitution(e))]
        implication = Implication()
        kept = []
        for number, equation in enumerate(candidates):
            verdict = known[equation]
            allowed = _Allowed(equation, verdict.conditions, verdict.given & implication.conditions)
            if not implication.implies(equation, verdict.given, allowed):
                kept.append(equation)
                implication.add(equation, verdict.conditions)
            progress("implied by others", number + 1, len(candidates))
        kept = _without_rearrangements(kept, known, progress)
        new = [equation for equation in kept if equation not in full]
        for seed in (plan.seed, plan.seed + 1):
            found = verdicts(new, FULL_DIM, seed, workers, "verification, larger shapes", progress)
            full.update((e, v.joined(full[e]) if e in full else v) for e, v in zip(new, found, strict=True))
        if all(full[e].holds and full[e].conditions == holding[e].conditions for e in new):
            refuted = [(equation, verdict) for equation, verdict in full.items() if not verdict.holds]
            return {equation: full[equation] for equation in kept}, sorted(refuted, key=lambda r: simplicity(r[0]))


def _without_rearrangements(
    kept: list[Equation], known: Mapping[Equation, Verdict], progress: Progress
) -> list[Equation]:
    """Without rearrangements that up to four applications of simpler equations lead to."""
    implication = Implication()
    left: list[Equation] = []
    for number, equation in enumerate(kept):
        verdict = known[equation]
        allowed = _Allowed(equation, verdict.conditions, verdict.given & implication.conditions)
        if not (is_rearrangement(equation) and implication.reaches(equation, verdict.given, allowed)):
            implication.add(equation, verdict.conditions)
            left.append(equation)
        progress("implied by longer paths", number + 1, len(kept))
    return left


@dataclass(slots=True)
class _Allowed:
    """Return whether a step has types, and satisfies conditions, where the equation does."""

    equation: Equation
    conditions: tuple[str, ...]
    """Under which the equation holds."""
    given: frozenset[str]
    """Conditions that a step has to satisfy as well, as the equation does: those that other equations need."""
    samples: list[dict[int, TermType]] | None = None

    def __call__(self, before: Expressions, after: Expressions) -> bool:
        if self.samples is None:
            self.samples = self._sample()
        step = to_substitution((before, after))
        return all(self._fits(step, types) for types in self.samples)

    def _fits(self, step: Substitution, types: Mapping[int, TermType]) -> bool:
        old, new = output_types(step.source, types), output_types(step.target, types)
        if old is None or new is None or [t.shape for t in old] != [t.shape for t in new]:
            return False
        return condition_holds(step, types, self.given)

    def _sample(self) -> list[dict[int, TermType]]:
        substitution = to_substitution(self.equation)
        found: list[dict[int, TermType]] = []
        for shapes in small_shapes(substitution, QUICK_DIM):
            types = {number: TermType(shape) for number, shape in shapes.items()}
            if condition_holds(substitution, types, self.conditions):
                found.append(types)
        return found[:: max(1, len(found) // SAMPLES)]


def _with(substitutions: Sequence[Substitution], name: str) -> list[Substitution]:
    """Copies with another activation in the place of relu, of those with a side of at most two operators.

    Nothing was used of relu but that it is a function: what holds for it holds for any other.
    """
    found = []
    for substitution in substitutions:
        renamed = replace(
            substitution, source=_renamed(substitution.source, name), target=_renamed(substitution.target, name)
        )
        if renamed != substitution and min(map(operators, from_substitution(substitution))) <= COPIED:
            found.append(renamed)
    return found


def _renamed(side: Side, name: str) -> Side:
    terms = []
    for node in side.terms:
        params = tuple((key, name if (key, value) == ("activation", "relu") else value) for key, value in node.params)
        terms.append(replace(node, op=name if node.op == "relu" else node.op, params=params))
    return replace(side, terms=tuple(terms))
