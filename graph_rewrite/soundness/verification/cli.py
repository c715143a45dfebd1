"""``rewritegym rules verify``: derive the certificates of rules, compare them with the files, or write them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from graph_rewrite.errors import UserError
from graph_rewrite.rules import RULE_SETS, registered_rules
from graph_rewrite.rules import certification as certificates
from graph_rewrite.rules.certification import BY_HAND, Certificate
from graph_rewrite.soundness.verification.outcome import RuleOutcome, check
from graph_rewrite.soundness.verification.report import print_outcomes
from graph_rewrite.soundness.verification.resolution import resolve, rules_of_set
from graph_rewrite.system.cpu_count import available_cores
from graph_rewrite.system.extras import require

_BATCH = 16
"""Certificates are written when there are so many, so that an interrupted run keeps what it has."""

EVERY_S = 30.0
"""Seconds between lines of progress where the console is no terminal."""


@dataclass(frozen=True)
class Verify:
    """Verify rules: derive their certificates and compare them with those in the repository.

    Exit status 0 when all certificates hold, 1 otherwise, with the counterexample or what is missing.
    """

    fast: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """A few instances per rule; the certificates themselves are made from all of them."""
    rule: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Only this rule, by name or, for one of your own, as path/to/file.py:ClassName; may be repeated."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """The rules of this set: default (those written by hand), generated or taso; may be repeated. All by default."""
    stale: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only those rules whose certificate is missing or was made for other code."""
    write: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write the certificates of the rules that pass, every few rules; not with --fast."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON array, an object per rule, and nothing else."""
    jobs: int = 0
    """Processes that verify at the same time; 0: as many as there are processors to use."""
    seed: int = 0
    """Seed of random instances and values; certificates in the repository have 0."""


def verify_rules(command: Verify) -> int:
    """Carry out `rules verify` and return its exit status.

    Raises:
        UserError: there is no rule or set of such a name, arguments do not fit together, a file has no such rule, or z3
            is not installed.
    """
    require("Verifying rules", "z3")
    if command.write and command.fast:
        raise UserError("--write needs every instance: leave out --fast")
    names = _chosen(command)
    console = Console(stderr=command.json)
    found, pending = list[RuleOutcome](), list[Certificate]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task, told = progress.add_task("verifying", total=len(names)), time.monotonic()
        for number, outcome in enumerate(_outcomes(names, command), 1):
            progress.update(task, advance=1, description=outcome.rule)
            if not console.is_terminal and time.monotonic() - told >= EVERY_S:
                told = time.monotonic()
                print(f"{number}/{len(names)} rules, the last was {outcome.rule}", file=sys.stderr, flush=True)
            if command.write and outcome.certificate is not None and outcome.registered:
                pending.append(outcome.certificate)
                outcome = replace(outcome, problem="")
            found.append(outcome)
            if len(pending) == _BATCH:
                certificates.write(pending, registered_rules())
                pending.clear()
    if command.write:
        certificates.write(pending, registered_rules(), retire=_retired(found, command))
    if command.json:
        print(json.dumps([_entry(outcome) for outcome in found], indent=1))
    else:
        print_outcomes(console, found, written=command.write)
    return 1 if any(outcome.problem for outcome in found) else 0


def _chosen(command: Verify) -> list[str]:
    """Return the rules to verify, as texts that another process can turn into rules again."""
    names = list(command.rule)
    for name in command.rule:
        resolve(name)
    for name in command.set or (() if names else RULE_SETS):
        names += [f"{name}/{rule.name}" for rule in rules_of_set(name)]
    return [name for name in names if not certificates.holds(resolve(name))] if command.stale else names


def _outcomes(names: Sequence[str], command: Verify) -> Iterator[RuleOutcome]:
    """Yield outcomes in the order of `names`, from as many processes as asked for."""
    jobs = min(command.jobs or available_cores(), len(names))
    requests = [(name, command.fast, command.seed) for name in names]
    if jobs <= 1:
        yield from map(_work, requests)
        return
    # Not by fork: ONNX Runtime's threads would not survive it.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_work, requests, chunksize=1)


def _work(request: tuple[str, bool, int]) -> RuleOutcome:
    name, fast, seed = request
    return check(resolve(name), fast=fast, seed=seed)


def _retired(found: Sequence[RuleOutcome], command: Verify) -> set[tuple[str, str]]:
    """Name and origin of certificates that go: of rules that a set verified as a whole no longer has, and of those that
    were refused."""
    refused = {(o.rule, o.origin) for o in found if o.certificate is None and o.registered}
    whole = () if command.rule else command.set or RULE_SETS
    known = {(rule.name, rule.origin) for name in whole for rule in rules_of_set(name)}
    origins = {BY_HAND if name == RULE_SETS[0] else name for name in whole}
    held = {(name, origin) for origin in origins for name in certificates.certified(origin)}
    return (held - known) | (refused & held if whole else refused)


def _entry(outcome: RuleOutcome) -> dict[str, Any]:
    held = None if outcome.certificate is None else outcome.certificate.to_json()
    return {"name": outcome.rule, "ok": not outcome.problem, "problem": outcome.problem, "certificate": held}
