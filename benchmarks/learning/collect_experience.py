"""Collect experience: search many networks by windows, each for some seconds, and log what is timed.

    python -m benchmarks.learning.collect_experience --seconds 90 --minutes 30

goes on where it was stopped: networks that were searched for as many seconds are left out, and `--minutes` ends a piece
of the work between two networks. The machine should do nothing else. Each network is searched in a process of its own,
so that one that fails costs itself alone. Then

    rewritegym experience export experience.jsonl.xz --store build/experience/store.sqlite3

writes the data set.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from agents.commands.common import stderr_console
from agents.core.base import Budget, Search
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from benchmarks.learning.generated.catalogue import Network, networks
from graph_rewrite.errors import UserError
from graph_rewrite.experience import ExperienceLog, ExperienceStore
from graph_rewrite.latency import JUDGE
from graph_rewrite.latency.provider import CpuProvider
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.problem import open_problem

STORE, PROGRESS, NETWORKS = "store.sqlite3", "progress.json", "networks"
"""The store, the list of searches that are done, and the generated networks, in the folder."""
SEARCH = RegionalOptions(
    prior="constants", climb=False, rounds=8, share=0.85, worth=0.0005, curiosity_share=0.5, retiming_share=0.2,
    refinement_share=0.02, deployment_share=0.0, sweeping_share=0.0, small_sweep_share=0.0, session_share=0.0,
    again_s=(),
)  # fmt: skip
"""Settings under which a search times as many different windows as it can: it also tries what promises little."""
PAIRS_S = SEARCH.scan.max_pairs / SEARCH.scan.budget_s
"""Most pairs of runs of a window for each second of its timing."""
PATIENCE_S = 600.0
"""Seconds beyond thrice those of the search after which its process is ended: exports and long measurements."""


@dataclass(frozen=True)
class Arguments:
    """Collect experience from variants of the zoo and from generated networks."""

    folder: Annotated[Path, tyro.conf.arg(help="The folder of the store.")] = Path("build/experience")
    seconds: float = 90.0
    """Seconds of the search of each network."""
    minutes: float | None = None
    """Minutes after which no further network is begun."""
    target: int = 10_000
    """Labels with which the collection is complete."""
    threads: int = 1
    """Threads per inference."""
    provider: CpuProvider = "cpu"
    """ONNX Runtime on the CPU, or OpenVINO. Each has a folder of its own."""
    rules: str = "default"
    """Names of the rule sets and rules that are searched, separated by commas. A new rule and those that follow it are
    known the sooner alone."""
    window_s: float = SEARCH.scan.budget_s
    """Seconds for timing a window: on a noisy machine labels weigh little, unless they take longer."""
    only: tuple[str, ...] = ()
    """Names of networks, or beginnings of them, such as encoder/ or zoo://bert; all by default."""
    one: str = ""
    """Search this network alone, in this process."""
    list: bool = False
    """Print the names of the networks and how long each was searched."""


@dataclass(frozen=True, slots=True)
class CollectedSearch:
    """A search that is done."""

    seconds: float
    labels: int
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {"seconds": self.seconds, "labels": self.labels, "error": self.error}


class Progress:
    """The searches that are done, by network and threads, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._done: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            self._done = {}
        except ValueError as error:
            raise UserError(f"{path}: this is no JSON: {error}; remove it to search all networks again") from error

    def seconds(self, network: str, threads: int) -> float:
        """Return the seconds for which a network was searched; 0 for none."""
        return float(self._done.get(f"{network} t{threads}", {}).get("seconds", 0.0))

    def note(self, network: str, threads: int, outcome: CollectedSearch) -> None:
        """Keep the outcome of a search."""
        self._done[f"{network} t{threads}"] = outcome.to_json()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, json.dumps(self._done, indent=1) + "\n")


def pending(arguments: Arguments, progress: Progress) -> list[Network]:
    """Return the networks that were not searched for as many seconds, those that were searched least first.

    Raises:
        UserError: a name in `only` is the beginning of none.
    """
    found = networks()
    for name in arguments.only:
        if not any(network.name.startswith(name) for network in found):
            raise UserError(f"no network begins with {name!r}; --list prints their names")
    asked = [n for n in found if not arguments.only or n.name.startswith(tuple(arguments.only))]
    left = [n for n in asked if progress.seconds(n.name, arguments.threads) < arguments.seconds]
    return sorted(left, key=lambda network: progress.seconds(network.name, arguments.threads))


def collect(
    arguments: Arguments,
    search: Callable[[Arguments, Network], CollectedSearch],
    console: Console,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Search the networks that are left, until the time is up or there are enough labels. Return the labels."""
    progress, begin = Progress(arguments.folder / PROGRESS), clock()
    labels = label_count(arguments.folder / STORE)
    for network in pending(arguments, progress):
        if labels >= arguments.target:
            break
        if arguments.minutes is not None and clock() - begin >= 60.0 * arguments.minutes:
            console.print("the time is up; the same command goes on from here")
            break
        outcome = search(arguments, network)
        progress.note(network.name, arguments.threads, outcome)
        labels = label_count(arguments.folder / STORE)
        console.print(f"{network.name}: {outcome.labels} timings {outcome.error}; {labels} labels", highlight=False)
    return labels


def label_count(path: Path) -> int:
    """Return the number of labels in a store; 0 where there is none."""
    if not path.exists():
        return 0
    store = ExperienceStore(path)
    try:
        return store.count()
    finally:
        store.close()


def in_own_process(arguments: Arguments, network: Network) -> CollectedSearch:
    """Search a network in a process of its own."""
    command = [
        sys.executable, "-m", "benchmarks.learning.collect_experience", "--folder", str(arguments.folder),
        "--one", network.name, "--seconds", str(arguments.seconds), "--threads", str(arguments.threads),
        "--provider", arguments.provider, "--rules", arguments.rules, "--window-s", str(arguments.window_s),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False,
            timeout=3.0 * arguments.seconds + PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return CollectedSearch(arguments.seconds, 0, "it took too long")
    if done.returncode:
        return CollectedSearch(arguments.seconds, 0, (done.stderr.strip().splitlines() or ["it failed"])[-1])
    return CollectedSearch(arguments.seconds, int(json.loads(done.stdout.splitlines()[-1])["labels"]))


def search_one(arguments: Arguments) -> int:
    """Search one network in this process, and print what was logged as JSON; return the exit code."""
    network = next((one for one in networks() if one.name == arguments.one), None)
    if network is None:
        raise UserError(f"there is no network {arguments.one!r}; --list prints their names")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    problem = open_problem(
        network.uri(arguments.folder / NETWORKS), provider=arguments.provider, threads=arguments.threads,
        deployment_choices=False, rules=arguments.rules,
    )  # fmt: skip
    log = ExperienceLog(ExperienceStore(arguments.folder / STORE, busy_timeout_s=60.0))
    search = Search(problem, Budget(measurements=10**6, seconds=arguments.seconds, overtime_s=JUDGE.budget_s))
    scan = replace(SEARCH.scan, budget_s=arguments.window_s, max_pairs=math.ceil(PAIRS_S * arguments.window_s))
    cpu, agent = time.process_time(), RegionalAgent(replace(SEARCH, scan=scan), log=log)
    with search.running():
        agent.explore(search)
    cpu = time.process_time() - cpu
    print(json.dumps({"labels": log.labels, "logging_cpu_s": log.cpu_s, "cpu_s": cpu, "seconds": search.elapsed}))
    return 0


def _run(arguments: Arguments) -> int:
    console = stderr_console()
    if arguments.one:
        return search_one(arguments)
    if arguments.list:
        progress = Progress(arguments.folder / PROGRESS)
        for network in networks():
            print(f"{network.name}\t{progress.seconds(network.name, arguments.threads):.0f} s")
        return 0
    labels = collect(arguments, in_own_process, console)
    print(json.dumps({"store": str(arguments.folder / STORE), "labels": labels, "target": arguments.target}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.collect_experience")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
