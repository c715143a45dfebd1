"""Files of recorded results, made anew by replaying their rewrites."""

from __future__ import annotations

from pathlib import Path

from agents.conclusion.conclude import saved_and_checked
from benchmarks.protocol.machine.description import machine
from benchmarks.protocol.searches.runs import uri_of
from benchmarks.protocol.table import read_rows
from graph_rewrite.errors import UserError
from graph_rewrite.replay import Recording, replay
from graph_rewrite.task.problem import open_problem

BUDGET_S = 60.0


def recorded(table: Path, agent: str, model: str) -> Recording:
    """Return the rewrites of an agent's first result at 60 s in a table of this machine.

    Raises:
        UserError: it has none.
    """
    wanted = (model, agent, 0, BUDGET_S)
    for row in read_rows(table, machine()):
        if tuple(row[name] for name in ("model", "agent", "seed", "budget_s")) == wanted and row["rewrites"]:
            return Recording.from_json(row["actions"])
    raise UserError(f"{table} has no result of {agent} with rewrites for {model}")


def made_again(table: Path, agent: str, model: str, path: Path, threads: int = 1) -> Path:
    """Write the file of such a result, checked, if it is not there yet, and return its path.

    Raises:
        UserError: there is none, its rewrites do not apply, or its outputs differ.
    """
    if path.is_file():
        return path
    problem = open_problem(uri_of(model, 1), provider="cpu", threads=threads)
    made = replay(recorded(table, agent, model), problem.model.graph, problem.rewriter)
    if not made.complete:
        raise UserError(f"{model}: the recorded rewrites do not apply any more")
    checked = saved_and_checked(problem, made.graph)
    if not checked.outcome.ok:
        raise UserError(f"{model}: {checked.outcome.message}")
    return checked.write_to(path)
