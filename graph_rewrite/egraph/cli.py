"""``python -m graph_rewrite egraph extract FILE``: the cheapest term of an e-graph in a file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from graph_rewrite.egraph.extract import Method, extract
from graph_rewrite.egraph.serialization import load_costed
from graph_rewrite.errors import UserError
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command

USAGE = """usage: python -m graph_rewrite egraph extract FILE [--method tree|shared|dag|ilp] [--time-limit S] [--json]

python -m graph_rewrite egraph extract --help tells the arguments."""


@dataclass(frozen=True)
class Extract:
    """Extract from an e-graph in the JSON format of egraph-serialize."""

    file: tyro.conf.Positional[str]
    """The file; children are ids of e-nodes, root_eclasses names what must be computed."""
    method: Method = "dag"
    """tree: greedy by tree cost; shared: the cost function of Hartmann et al.; dag: local improvement of the true cost;
    ilp: optimal, or as near as the time limit allows."""
    time_limit: float = 60.0
    """Seconds for dag and ilp."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object with cost, acyclic, gap (null where nothing is proven) and seconds, and nothing else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the subcommand. Returns 0, or 2 with a line on standard error where file or arguments don't fit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] != ["extract"]:
        asked = arguments[:1] in (["-h"], ["--help"])
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    command = parse(Extract, arguments[1:], "python -m graph_rewrite egraph extract", pairs=True)
    return run_command(lambda: _run(command))


def _run(command: Extract) -> int:
    if not (math.isfinite(command.time_limit) and command.time_limit > 0):
        raise UserError(f"--time-limit must be a positive number of seconds, not {command.time_limit}")
    graph = load_costed(command.file)
    found = extract(graph, command.method, time_limit=command.time_limit)
    if command.json:
        print(json.dumps({k: getattr(found, k) for k in ("cost", "acyclic", "gap", "seconds")}))
    else:
        gap = "" if found.gap is None else f", proven within {100 * found.gap:.3g}% of the optimum"
        print(f"{found.method}: cost {found.cost:.6g} with {len(found.choice)} e-nodes{gap}, {found.seconds:.2f} s")
    return 0
