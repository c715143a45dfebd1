"""Choose the mutants that come with RewriteGym.

    python -m benchmarks.papers.shipped_mutants --models resnet18 resnet50 --batches 4 8 16 32

Each model is searched for mutants, as `rewritegym optimize --mutants search` does. Of the mutants of a subprogram the
one is chosen that saves most in the window around its site, if that is sure and if its operators, each timed alone,
take less time than the original's too. The mutants that are chosen for a model ship if the model with all of them, at
all of their sites, is surely faster end to end. The file has the evidence: all times, the multiplications and the bytes
of either side, machine and versions. What it holds of other subprograms stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import onnxruntime
import tyro

from agents.commands.common import stderr_console
from agents.core.config import load_config
from agents.searching.mutants import DifferenceTimer, Meters, MutantMeters, measured_meters
from benchmarks.protocol.machine.description import machine_name
from benchmarks.protocol.searches.runs import uri_of
from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency import Deployment, Latency, MeasurementError, OperatorSpec
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window_meter import clock_of
from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.generation.generator import KEEP
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.mutate.mutant_rules.shipped import FILE, read_shipped, write_shipped
from graph_rewrite.mutate.optimizing.optimizer import FoundRule, FoundRules, Optimizer
from graph_rewrite.mutate.optimizing.pricing import Prices, operators_of_program
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.search import Limits
from graph_rewrite.mutate.subprograms import LARGEST
from graph_rewrite.mutate.summary import summary
from graph_rewrite.operators.work import tensor_bytes
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.problem import Problem, open_problem

Say = Callable[[str], None]
WINDOW_S = 4.0
"""Seconds for timing the window of a mutant: what ships must pay surely."""
CAREFUL_METERS: Meters = partial(measured_meters, window_s=WINDOW_S)


@dataclass(frozen=True)
class Arguments:
    """Choose the mutants that come with RewriteGym."""

    models: tuple[str, ...]
    """Names of the zoo, or ONNX files."""
    batches: tuple[int, ...] = (1,)
    """Batches of the models of the zoo; an ONNX file keeps its own."""
    seconds: float = 180.0
    """Seconds of the search for mutants in each model."""
    only: str = ""
    """Search only subprograms whose operators, as `python -m graph_rewrite mutate` lists them, hold this text."""
    largest: int = LARGEST
    """Operators of a subprogram, at most."""
    depth: int = 4
    """Operators of a mutant, 1 to 4."""
    keep: float = KEEP
    """The part of each output that a mutant must get right before its repair, from 0 to 1."""
    rounds: int = 4
    """How often mutants are mutated."""
    least: float = 1.02
    """A mutant is chosen whose operators, and whose window, take the original's time over this one at most."""
    threads: int = 1
    """Threads per inference."""
    out: Path = FILE
    """The file that holds the mutants."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the evidence as one JSON object and nothing else."""


@dataclass(frozen=True)
class Chosen:
    """A mutant that pays, with the evidence in its certificate, and the milliseconds that it saves in its window."""

    rule: MutantRule
    saved_ms: float


def opened(model: str, batch: int, threads: int) -> Problem:
    """Open a model as a problem of one deployment on the CPU."""
    config = load_config(model)
    uri, clock = uri_of(model, batch), clock_of(Deployment("cpu", threads))
    return open_problem(uri, provider="cpu", threads=threads, rules=config.env.rules, cached=False, clock=clock)


def searched(problem: Problem, arguments: Arguments, measured: MutantMeters) -> FoundRules:
    """Search a problem for mutants whose operators take less time than the original's."""
    optimizer = Optimizer(
        Prices(measured.price),
        Limits(seconds=arguments.seconds, depth=arguments.depth, keep=arguments.keep, largest=arguments.largest),
        rounds=arguments.rounds,
        rules=problem.rewriter.rules,
        wanted=lambda sub: arguments.only in summary(sub.program, sub.shapes),
    )
    return optimizer.rules_of(problem.model.graph)


def choose(
    problem: Problem, rules: Sequence[FoundRule], timer: DifferenceTimer, least: float, say: Say
) -> list[MutantRule]:
    """Return the best mutant of each subprogram that has one that pays, with its evidence in the certificate.

    Args:
        problem: the problem.
        rules: what was found for it.
        timer: times the windows of rewrites.
        least: the times of the original must be so many times those of the mutant.
        say: told of each mutant what becomes of it.
    """
    best: dict[object, Chosen] = {}
    for each in rules:
        judged = _judged(problem, each, timer, least)
        if isinstance(judged, str):
            say(f"  {each.rule.name}: {judged}")
            continue
        say(f"  {each.rule.name}: saves {judged.saved_ms:.3f} ms in its window: {each.rule.equation}")
        key = original_of(each.rule)
        if key not in best or best[key].saved_ms < judged.saved_ms:
            best[key] = judged
    return [chosen.rule for chosen in best.values()]


def _judged(problem: Problem, found: FoundRule, timer: DifferenceTimer, least: float) -> Chosen | str:
    """Return a mutant with its evidence, or the reason why it does not ship."""
    graph, rule = problem.model.graph, found.rule
    if found.original_ms < least * found.ms:
        return f"its operators take {found.ms:.3f} ms, and those of the original {found.original_ms:.3f} ms"
    sites = Enumerator([rule], "site", False, problem.rewriter.domains).candidates(graph)
    if not len(sites):
        return "it has no site"
    try:
        timed = timer.difference(graph, sites[0].apply())
    except (MeasurementError, InvalidRewriteError) as error:
        return str(error)
    if not timed.ok:
        return timed.message
    if timed.ci95[0] < (1.0 - 1.0 / least) * timed.window_seconds:
        return f"its window saves {1e3 * timed.seconds:.3f} ms, at least {1e3 * timed.ci95[0]:.3f} ms"
    return Chosen(_with_evidence(rule, evidence(problem, found, timed)), 1e3 * timed.seconds)


def with_all(problem: Problem, rules: Sequence[MutantRule]) -> Graph:
    """Return the graph of a problem with mutants at all of their sites; what saves most in its window comes first."""
    graph = problem.model.graph
    for rule in sorted(rules, key=lambda rule: -rule.certificate["evidence"]["saved_ms"][0]):
        sites = tuple(Enumerator([rule], "site", False, problem.rewriter.domains).sites(graph))
        if sites:
            graph = Candidate("class" if len(sites) > 1 else "site", graph, sites).apply()
    return graph


def that_pay_together(problem: Problem, rules: Sequence[MutantRule], say: Say) -> list[MutantRule]:
    """Return the mutants of a model with the speed-up of all of them, end to end, in their evidence; none where that is
    not surely above 1."""
    if not rules:
        return []
    timed = problem.measure(with_all(problem, rules), "full")
    if not timed.ok or timed.lower_bound <= 1.0:
        say(f"  none ships: {timed.message or f'together the model is {interval_text(timed)} times as fast'}")
        return []
    say(f"  together the model is {interval_text(timed)} times as fast")
    speedup = [round(value, 4) for value in (timed.speedup, *timed.ci95)]
    return [_with_evidence(rule, {**rule.certificate["evidence"], "model_speedup": speedup}) for rule in rules]


def interval_text(timed: Latency) -> str:
    """Return a speed-up with its interval in words."""
    low, high = timed.ci95
    return f"{timed.speedup:.3f} ({low:.3f} to {high:.3f})"


def _with_evidence(rule: MutantRule, found: dict[str, Any]) -> MutantRule:
    certificate = {**rule.certificate, "evidence": found}
    return MutantRule(
        rule.operators, rule.original, rule.mutant, rule.shapes, rule.dtype, rule.constants, certificate
    )  # fmt: skip


def evidence(problem: Problem, found: FoundRule, timed: Difference) -> dict[str, Any]:
    """Return what tells that a mutant pays, as plain values; pairs are of the original and of the mutant."""
    rule = found.rule
    sides = (rule.original, rule.mutant)
    return {
        "model": problem.model.uri,
        "threads": problem.deployment.threads,
        "machine": machine_name(),
        "onnxruntime": onnxruntime.__version__,
        "operators_ms": [round(found.original_ms, 4), round(found.ms, 4)],
        "window_ms": round(1e3 * timed.window_seconds, 4),
        "saved_ms": [round(1e3 * seconds, 4) for seconds in (timed.seconds, *timed.ci95)],
        "multiplications": [work_of(side, rule.shapes) for side in sides],
        "bytes": [traffic(side, rule.shapes, rule.constants) for side in sides],
    }


def traffic(program: TensorProgram, shapes: Sequence[Shape], constants: frozenset[int]) -> int:
    """Return how many bytes the operators of a program read and write at run time, each on its own."""
    return sum(map(_bytes, operators_of_program(program, shapes, constants)))


def _bytes(spec: OperatorSpec) -> int:
    types = (*spec.input_types, *spec.output_types)
    return sum(tensor_bytes(TensorType(*type)) for type in types if type is not None)


def original_of(rule: MutantRule) -> object:
    """Return what tells the original of a mutant from others."""
    return rule.operators, rule.original, rule.shapes, rule.dtype, rule.constants


def merged(old: Sequence[MutantRule], new: Sequence[MutantRule]) -> list[MutantRule]:
    """Return old mutants with new ones in the place of those of the same original."""
    replaced = set(map(original_of, new))
    return [*(rule for rule in old if original_of(rule) not in replaced), *new]


def run(arguments: Arguments, say: Say, meters: Meters = CAREFUL_METERS) -> list[MutantRule]:
    """Search all models; the file is written after each. Return the mutants that it holds in the end.

    Raises:
        UserError: a file is given several batches.
    """
    rules = list(read_shipped(arguments.out))
    for model in arguments.models:
        for batch in arguments.batches:
            if batch > 1 and Path(model).is_file():
                raise UserError(f"--batches {batch}: {model} is a file, and keeps its own batch")
            problem = opened(model, batch, arguments.threads)
            with meters(problem) as measured:
                found = searched(problem, arguments, measured)
                say(f"{problem.model.uri}: {found}")
                chosen = choose(problem, found.rules, measured.timer, arguments.least, say)
            rules = merged(rules, that_pay_together(problem, chosen, say))
            write_shipped(arguments.out, rules)
    return rules


def lines(rules: Sequence[MutantRule]) -> list[str]:
    """Return a table of mutants with their evidence in Markdown."""
    found = [
        "| mutant | original | repair | multiplications | bytes | operators | window | model |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for rule in rules:
        known = rule.certificate["evidence"]
        repairs = ", ".join(each["repair"] for each in rule.certificate.get("rounds", []))
        ratios = [after / before for before, after in (known["multiplications"], known["bytes"], known["operators_ms"])]
        saved = known["saved_ms"][0] / known["window_ms"] if known["window_ms"] else 0.0
        cells = [rule.name, rule.equation.partition(" = ")[0], repairs, *(f"x{ratio:.2f}" for ratio in ratios)]
        cells += [f"saves {saved:.1%}", f"x{known['model_speedup'][0]:.3f}"]
        found.append(f"| {' | '.join(cells)} |")
    return found


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.papers.shipped_mutants")

    def command() -> int:
        if not arguments.models:
            raise UserError("--models: name at least one")
        rules = run(arguments, stderr_console().print)
        if arguments.json:
            print(json.dumps({rule.name: rule.certificate["evidence"] for rule in rules}))
        else:
            print("\n".join(lines(rules)))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
