"""The work of the generator's processes. Finished work is kept in files, so that an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TypeVar

import numpy as np

from graph_rewrite.errors import UserError
from graph_rewrite.generate.expressions import Equation, equation_key, from_substitution, to_substitution
from graph_rewrite.generate.families import Family, families
from graph_rewrite.generate.fingerprint import Graphs, concatenate, enumerate_graphs
from graph_rewrite.generate.pairing import Paired, pair
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.terms.conditions import Derivation, derive
from graph_rewrite.terms.json_form import from_json, to_json
from graph_rewrite.terms.substitution import SIGNATURES

Item = TypeVar("Item")
Result = TypeVar("Result")

FORMAT = 8
"""The version of the state; a new one starts every run anew."""
LARGER_DIM = 3

Progress = Callable[[str, int, int], None]
"""Called with a step, how much of it is done, and how much it is."""


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """The settings that decide what a run generates."""

    ops: tuple[str, ...] = tuple(SIGNATURES)
    max_ops: int = 3
    seed: int = 0

    @property
    def key(self) -> str:
        """Names the run's state: changes with anything that finished work depends on."""
        text = repr((FORMAT, asdict(self), families(self.ops)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Workers:
    """Processes that carry out tasks, in order; none beside this one where one is enough."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._pool: Pool | None = None

    def __enter__(self) -> Workers:
        if self._processes > 1:
            self._pool = multiprocessing.get_context("spawn").Pool(self._processes)
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def map(self, function: Callable[[Item], Result], tasks: Sequence[Item]) -> Iterator[Result]:
        """Results in the order of the tasks, as they come."""
        if self._pool is None:
            return map(function, tasks)
        return self._pool.imap(function, tasks, chunksize=max(1, min(8, len(tasks) // (4 * self._processes))))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Return whether and under which conditions an equation holds over small shapes."""

    derivation: Derivation
    given: frozenset[str] = frozenset()
    """Conditions that all those shapes satisfy under which it holds; its own are among them."""

    @property
    def holds(self) -> bool:
        """Under some condition."""
        return self.derivation.holds

    @property
    def conditions(self) -> tuple[str, ...]:
        """Those that it needs."""
        return self.derivation.conditions

    def joined(self, other: Verdict) -> Verdict:
        """Both, over different samples of shapes: the failure if there is one, else the conditions of both."""
        if not (self.holds and other.holds):
            return other if self.holds else self
        conditions = tuple(sorted({*self.conditions, *other.conditions}))
        return Verdict(replace(self.derivation, conditions=conditions), self.given & other.given | set(conditions))


def verdicts(
    equations: Iterable[Equation], max_dim: int, seed: int, workers: Workers, step: str, progress: Progress
) -> list[Verdict]:
    """Return whether equations hold, over shapes up to `max_dim`; up to 3 at least where smaller ones don't fit."""
    tasks = [(equation, max_dim, seed) for equation in equations]
    found = []
    for verdict in workers.map(_verdict, tasks):
        found.append(verdict)
        progress(step, len(found), len(tasks))
    return found


def _verdict(task: tuple[Equation, int, int]) -> Verdict:
    equation, max_dim, seed = task
    substitution = to_substitution(equation)
    derivation = derive(substitution, max_dim, seed)
    if not derivation.shapes and max_dim < LARGER_DIM:
        derivation = derive(substitution, LARGER_DIM, seed)
    return Verdict(derivation, derivation.given)


def paired_family(task: tuple[GenerationSettings, int, Path]) -> Paired:
    """The equations of one family, read from the state or made and written there."""
    plan, number, folder = task
    family = families(plan.ops)[number]
    path = folder / f"family-{number:02}.json"
    if path.exists():
        return _read_paired(path)
    graphs = concatenate([_shard(plan, family, number, first, folder) for first in range(len(family.operators))])
    paired = pair(family, graphs, plan.seed)
    paired.equations.sort(key=equation_key)
    equations = [to_json(to_substitution(equation)) for equation in paired.equations]
    counts = {"graphs": paired.graphs, "pairs": paired.pairs, "distinct": paired.distinct}
    replace_file(path, json.dumps({**counts, "equations": equations}))
    return paired


def _read_paired(path: Path) -> Paired:
    data = json.loads(path.read_text())
    equations = [from_substitution(from_json(entry)) for entry in data["equations"]]
    return Paired(data["graphs"], data["pairs"], data["distinct"], equations)


def _shard(plan: GenerationSettings, family: Family, number: int, first: int, folder: Path) -> Graphs:
    path = folder / f"graphs-{number:02}-{first:02}.npz"
    if path.exists():
        try:
            with np.load(path) as data:
                return Graphs(data["fingerprints"], data["codes"], data["flags"])
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise UserError(f"{path} is damaged ({error}); delete it and run again") from error
    graphs = enumerate_graphs(family, first, plan.max_ops, plan.seed)
    temporary = path.with_suffix(f".{os.getpid()}.npz")
    np.savez(temporary, fingerprints=graphs.fingerprints, codes=graphs.codes, flags=graphs.flags)
    os.replace(temporary, path)
    return graphs
