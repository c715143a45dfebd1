"""``rewritegym rules verify``: derive the certificates of rules, compare them with the files, or write them."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import certification as certificates
from graph_rewrite.rules import registered_rules
from graph_rewrite.rules.certification import BY_HAND, Certificate
from graph_rewrite.rules.registry import UnknownRuleError
from graph_rewrite.system.cpu_count import available_cores

_BATCH = 16
"""Certificates are written when there are so many, so that an interrupted run keeps what it has."""

_MOST_LISTED = 60
"""Of more rules only those are listed about which there is something to say."""


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
    """Of random instances and values; certificates in the repository have 0."""


@dataclass(frozen=True)
class Outcome:
    """What verifying one rule gave: `problem` is empty where its certificate holds."""

    rule: str
    origin: str
    certificate: Certificate | None
    problem: str
    registered: bool = True


def verify_rules(command: Verify) -> int:
    """Carry out `rules verify` and return its exit status.

    Raises:
        KeyError: there is no rule or set of such a name.
        ValueError: arguments that do not fit together, or a file without such a rule.
    """
    if command.write and command.fast:
        raise UserError("--write needs every instance: leave out --fast")
    names = _chosen(command)
    console = Console(stderr=command.json)
    found, pending = list[Outcome](), list[Certificate]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("verifying", total=len(names))
        for outcome in _outcomes(names, command):
            progress.update(task, advance=1, description=outcome.rule)
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
        _print(console, found, command)
    return 1 if any(outcome.problem for outcome in found) else 0


def check(rule: Rule, *, fast: bool, seed: int = 0) -> Outcome:
    """Verify a rule and compare the outcome with the certificate in the repository, as far as `fast` allows."""
    # Not at the top: the other subcommands need neither z3 nor ONNX Runtime.
    from graph_rewrite.soundness.verification.verifier import Refutation, verify

    try:
        result = verify(rule, fast=fast, seed=seed)
    except Exception as error:
        # A rule that breaks the machinery is not certified; the others are verified all the same.
        result = Refutation(rule.name, rule.equation, f"verification failed: {type(error).__name__}: {error}")
    origin = rule.origin
    if isinstance(result, Refutation):
        return Outcome(rule.name, origin, None, str(result), _is_registered(rule))
    if not _is_registered(rule):
        return Outcome(rule.name, origin, result, "", registered=False)
    return Outcome(rule.name, origin, result, _deviation(certificates.load(rule.name, origin), result, fast))


def _deviation(held: Certificate | None, found: Certificate, fast: bool) -> str:
    """How the certificate in the repository falls short of what was found."""
    command = f"rewritegym rules verify --rule {found.rule} --write"
    if held is None:
        return f"{found.rule} has no certificate: {command}"
    if held.digest != found.digest:
        return f"{found.rule} has changed since it was certified: {command}"
    if fast:
        worse = held.verdict == "proved" and found.verdict != "proved"
        return f"{found.rule} is certified as proved, and now: {found.reason}" if worse else ""
    if held == found:
        return ""
    fields = [name for name, value in held.to_json().items() if found.to_json()[name] != value]
    return f"{found.rule}: the certificate differs in {', '.join(fields)}: {command}"


def _is_registered(rule: Rule) -> bool:
    """Whether the rule is one of the package, not one of the user's own."""
    return type(rule).__module__.startswith("graph_rewrite.")


def _chosen(command: Verify) -> list[str]:
    """What to verify, as texts that another process can turn into rules again."""
    from graph_rewrite import rules

    names = list(command.rule)
    for name in command.rule:
        resolve(name)
    for name in command.set or (() if names else rules.RULE_SETS):
        names += [f"{name}/{rule.name}" for rule in _set(name)]
    return [name for name in names if not certificates.holds(resolve(name))] if command.stale else names


def resolve(name: str) -> Rule:
    """A rule by its name, as set/name, or as path/to/file.py:ClassName.

    Raises:
        UnknownRuleError: there is no such rule.
        UserError: no such class in the file.
    """
    path, colon, kind = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), kind)
    from graph_rewrite import rules

    origin, _, plain = name.rpartition("/")
    for known in [origin] if origin else rules.RULE_SETS:
        if plain in _by_name(known):
            return _by_name(known)[plain]
    where = f" in the set {origin}" if origin else ""
    raise UnknownRuleError(f"there is no rule {plain!r}{where}; rules list names them")


@cache
def _by_name(name: str) -> dict[str, Rule]:
    return {rule.name: rule for rule in _set(name)}


def _set(name: str) -> Sequence[Rule]:
    """The rules of a set, with or without certificates.

    Raises:
        ValueError: there is no such set.
    """
    from graph_rewrite import rules
    from graph_rewrite.rules.substitutions.rule_files import shipped_rules

    if name == rules.RULE_SETS[0]:
        return rules.registered_rules()
    if name not in rules.RULE_SETS:
        raise UserError(f"there is no rule set {name!r}; there are {', '.join(rules.RULE_SETS)}")
    return shipped_rules(name)


def _from_file(path: Path, kind: str) -> Rule:
    if not path.is_file():
        raise UserError(f"--rule {path}:{kind}: there is no such file")
    module_name = f"rewritegym_rules_{path.stem}"
    module = sys.modules.get(module_name)
    if module is None or getattr(module, "__file__", None) != str(path.resolve()):
        spec = importlib.util.spec_from_file_location(module_name, path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found = getattr(module, kind, None)
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise UserError(f"--rule {path}:{kind}: the file defines no rule of this name")
    return found()


def _outcomes(names: Sequence[str], command: Verify) -> Iterator[Outcome]:
    """Outcomes in the order of `names`, from as many processes as asked for."""
    jobs = min(command.jobs or available_cores(), len(names))
    requests = [(name, command.fast, command.seed) for name in names]
    if jobs <= 1:
        yield from map(_work, requests)
        return
    # Not by fork: ONNX Runtime's threads would not survive it.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_work, requests, chunksize=1)


def _work(request: tuple[str, bool, int]) -> Outcome:
    name, fast, seed = request
    return check(resolve(name), fast=fast, seed=seed)


def _retired(found: Sequence[Outcome], command: Verify) -> set[tuple[str, str]]:
    """Name and origin of certificates that go: of rules that a set verified as a whole no longer has, and of those that
    were refused."""
    from graph_rewrite import rules

    refused = {(o.rule, o.origin) for o in found if o.certificate is None and o.registered}
    whole = () if command.rule else command.set or rules.RULE_SETS
    known = {(rule.name, rule.origin) for name in whole for rule in _set(name)}
    origins = {BY_HAND if name == rules.RULE_SETS[0] else name for name in whole}
    held = {(name, origin) for origin in origins for name in certificates.certified(origin)}
    return (held - known) | (refused & held if whole else refused)


def _entry(outcome: Outcome) -> dict[str, Any]:
    held = None if outcome.certificate is None else outcome.certificate.to_json()
    return {"name": outcome.rule, "ok": not outcome.problem, "problem": outcome.problem, "certificate": held}


def _print(console: Console, found: Sequence[Outcome], command: Verify) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("rule", "method", "instances", "worst error", "certificate"):
        numeric = column in ("instances", "worst error")
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=column != "method")
    listed = found if len(found) <= _MOST_LISTED else [outcome for outcome in found if outcome.problem]
    for outcome in listed:
        table.add_row(*_row(outcome, command.write))
    if listed:
        console.print(table)
    for outcome in found:
        if outcome.problem:
            console.print(Text(outcome.problem + "\n"))
    for origin in dict.fromkeys(outcome.origin for outcome in found):
        console.print(_summary(origin, [outcome for outcome in found if outcome.origin == origin]))
    if len(found) > len(listed):
        console.print("--json lists them all; rewritegym rules show NAME shows one")


def _summary(origin: str, found: Sequence[Outcome]) -> str:
    proved = sum(o.certificate is not None and o.certificate.verdict == "proved" for o in found)
    refused = sum(o.certificate is None for o in found)
    differing = sum(bool(o.problem) for o in found) - refused
    parts = [f"{proved} proved", f"{len(found) - proved - refused} tested", f"{refused} refused"]
    return f"{origin}: {len(found)} rules, {', '.join(parts)}; {differing} not as their certificates say"


def _row(outcome: Outcome, written: bool) -> list[Text]:
    held = outcome.certificate
    if held is None:
        return [Text(outcome.rule), Text("-"), Text("-"), Text("-"), Text("refused", style="red")]
    methods = ", ".join(f"{name} {count}" for name, count in held.methods.items())
    state = Text("differs", style="red") if outcome.problem else Text("written" if written else "holds", style="green")
    return [Text(outcome.rule), Text(methods), Text(str(held.instances)), Text(held.worst_error), state]
