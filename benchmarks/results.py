"""The table of results: every agent on every model, and the tools that a user would pick instead, judged side by side.

    python -m benchmarks.results --models bert-tiny squeezenet --agents regional greedy --peers ort openvino \\
        --budget 20 --seeds 2 --json

benchmarks/README.md explains the protocol. The command goes on where it stopped: finished searches and judgements are
kept in --runs. Everything that one table compares belongs into one command, since a judgement is of what it names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from agents.commands.common import stderr_console
from benchmarks import RESULTS
from benchmarks.protocol.harness import Harness, Tools
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.machine.description import machine, machine_name, versions
from benchmarks.protocol.machine.processes import child_environment
from benchmarks.protocol.plan import AGENTS, ALL, CONTROLS, TablePlan
from benchmarks.protocol.summary import controls_held, summary_table
from benchmarks.protocol.table import Row, own_key, write_results
from benchmarks.protocol.tools import check_models, tools_of
from graph_rewrite import zoo
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Search with every agent, judge all results and other tools side by side, and write the table."""

    models: tuple[str, ...] = ()
    """Names of the zoo, zoo://NAME?PARAMETER=VALUE, or ONNX files; by default the sixteen models of the table."""
    agents: tuple[str, ...] = AGENTS
    """Agents by name, with options; regional@600 has a budget of its own."""
    controls: tuple[str, ...] = ()
    """Controls: policy-untrained, policy-unsampled, regional-no-climb, regional-unlearnt, regional-held-out, replay,
    best-runtime; or all."""
    peers: tuple[str, ...] = (ALL,)
    """Other tools; ort stands for all whose names begin with ort-. --peers alone for none."""
    budget: tuple[float, ...] = (60.0,)
    """Seconds of each run, search and conclusion together; with 60, also 100 measurements at most."""
    seeds: int = 3
    """Seeds of each agent: 0, 1, ..."""
    threads: int = 1
    """Threads per inference."""
    batch: int = 1
    """Examples per inference."""
    provider: Literal["cpu", "cuda"] = "cpu"
    """Provider of ONNX Runtime that originals and results run with. With cuda, --at-once searches share the device, and
    sessions of a judgement have it to themselves."""
    aa: int = 0
    """Judgements of originals against themselves, which should find no difference."""
    at_once: int = 2
    """Searches, and sessions of a judgement, side by side at most, each on cores of its own."""
    sessions: int = 6
    """Sessions of a judgement."""
    rounds: int = 8
    """Rounds of a session at most; slow models have four or more."""
    patience: float = 240.0
    """Seconds to wait for a quiet machine, at most."""
    machine: str = ""
    """The machine's name, as a folder of results; by default that of its processor, or with cuda of its device."""
    runs: Path = Path("runs/results")
    """Folder in which searches and judgements are kept."""
    out: Path | None = None
    """The results file; by default benchmarks/results/MACHINE/PROVIDER-tTHREADS.json."""
    no_figures: bool = False
    """Make no tables and plots of the results file."""
    json: bool = False
    """Print one JSON object and nothing else on standard output."""

    @property
    def machine_name(self) -> str:
        """The name of the machine."""
        return self.machine or machine_name(self.provider)

    @property
    def setting(self) -> str:
        """The name of provider, threads and batch."""
        return f"{self.provider}-t{self.threads}" + (f"-b{self.batch}" if self.batch > 1 else "")

    @property
    def path(self) -> Path:
        """The results file."""
        return self.out or RESULTS / self.machine_name / f"{self.setting}.json"

    @property
    def folder(self) -> Path:
        """The folder of this table's runs."""
        return self.runs.resolve() / self.machine_name / self.setting

    def plan(self) -> TablePlan:
        """Return the plan of the table.

        Raises:
            UserError: an agent or a control that there is not, or a number out of range.
        """
        controls = tuple(CONTROLS) if self.controls == (ALL,) else self.controls
        protocol = replace(Protocol(), sessions=self.sessions, rounds=self.rounds)
        return TablePlan(
            self.models or tuple(zoo.names()), self.agents, controls, self.peers, self.budget, self.seeds, self.threads,
            self.batch, self.provider, self.aa, self.at_once, protocol,
        )  # fmt: skip


def head_of(arguments: Arguments, plan: TablePlan, tools: Tools) -> dict[str, Any]:
    """Return all that the results file says beside its rows."""
    listed = {name: value for name, value in asdict(plan).items() if name not in ("models", "protocol")}
    setting = {name: value for name, value in tools.setting.items() if name not in ("machine", "versions")}
    return {
        "machine": {"name": arguments.machine_name, **machine(plan.provider)},
        "versions": versions(),
        "commit": tools.commit,
        "protocol": {**plan.protocol.to_json(), **listed, **setting},
    }


def run(arguments: Arguments, console: Console, tools: Tools | None = None) -> list[Row]:
    """Make the table, as far as it is not there yet. The results file is written after every model. Return the rows of
    this command.

    Raises:
        UserError: there is no such model, agent or control, or the results file is of another machine.
        SharedMeasurementError: two seeds share a measurement.
    """
    plan = arguments.plan()
    check_models(plan.models)
    tools = tools or tools_of(plan, lambda text: _say(console, text), arguments.patience)
    head, rows = head_of(arguments, plan, tools), list[Row]()

    def keep(found: list[Row]) -> None:
        rows.extend(found)
        whole = write_results(arguments.path, head, rows)
        head["protocol"] |= controls_held(whole)

    Harness(plan, arguments.folder, tools).rows(keep)
    write_results(arguments.path, head, rows)
    older = sum(row["kind"] != "peer" and row.get("commit") not in (None, tools.commit) for row in rows)
    if older:
        again = f"remove their folders in {arguments.folder} to repeat them"
        _say(console, f"{older} results were searched at other commits; {again}")
    keys = [own_key(row) for row in rows]
    assert len(set(keys)) == len(keys), "every row of a command is of another run"
    return rows


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def make_figures(path: Path, console: Console) -> None:
    """Make tables and plots of a results file, where this clone has the command for it."""
    if find_spec("benchmarks.figures") is None:
        return
    command = [sys.executable, "-m", "benchmarks.figures", str(path)]
    done = subprocess.run(command, env=child_environment(1), stdout=sys.stderr, check=False)
    if done.returncode:
        console.print(f"no figures were made of {path}: {' '.join(command[1:])} ended with {done.returncode}")


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments: Arguments = parse(Arguments, None, "python -m benchmarks.results")

    def command() -> int:
        console = stderr_console()
        rows = run(arguments, console)
        if not arguments.no_figures:
            make_figures(arguments.path, console)
        if arguments.json:
            print(json.dumps({"rows": rows}))
        else:
            Console(width=None if sys.stdout.isatty() else 160).print(summary_table(rows))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
