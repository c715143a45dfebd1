"""The tools of the harness on this machine: real searches, processes, peers and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.harness import Say, Tools
from benchmarks.protocol.judging.inputs import write_inputs
from benchmarks.protocol.judging.judge import Judge
from benchmarks.protocol.judging.judgement import MakeJudge
from benchmarks.protocol.judging.outputs import OutputCheck
from benchmarks.protocol.judging.seats import ProcessSeat
from benchmarks.protocol.machine.description import commit, machine_name, room, versions
from benchmarks.protocol.machine.processes import cores_for
from benchmarks.protocol.machine.quiet import QuietMachine, measure
from benchmarks.protocol.plan import TablePlan, known_peers
from benchmarks.protocol.searches.runs import PROCESS, located, side_by_side, uri_of
from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.latency import MachineLock
from graph_rewrite.runtime import PROVIDERS
from graph_rewrite.system.cpu_count import available_cores, check_threads, physical_cores
from graph_rewrite.system.huge_pages import pages_of_children


def tools_of(plan: TablePlan, say: Say, patience_s: float, module: str = PROCESS) -> Tools:
    """Return the tools for a plan.

    Args:
        patience_s: seconds to wait for a quiet machine, at most.
        module: the module of a search's process.

    Raises:
        UserError: more threads than cores.
    """
    cores = cores_for(check_threads(plan.threads))
    groups = core_groups(plan.threads, plan.at_once)
    # There is one device, and what waits for it needs cores for its driver as well. Searches that share it are slower
    # for it, but most of their time goes to opening sessions.
    is_cpu = PROVIDERS[plan.provider].is_cpu
    lanes, searching = (groups, groups) if is_cpu else ([cores_for(available_cores())], [()] * plan.at_once)
    quiet = QuietMachine(lambda: measure(cores), patience_s, say)
    return Tools(
        locate=lambda model: located(model, plan.batch),
        search=lambda runs: side_by_side(runs, searching, module),
        judging=lambda model, folder: judging(uri_of(model, plan.batch), folder, plan, lanes),
        wait=quiet.wait,
        peers=known_peers(),
        commit=commit(),
        setting={
            "machine": machine_name(plan.provider), "versions": versions(), "threads": plan.threads,
            "cores": sorted(core for lane in lanes for core in lane),
            "at_once": len(lanes), "memory_pages": pages_of_children(),
        },
        at_once=len(lanes), searches_at_once=len(searching), quiet=MachineLock, say=say,
    )  # fmt: skip


def core_groups(threads: int, at_once: int) -> list[tuple[int, ...]]:
    """Return the cores of each of the searches, or sessions of a judgement, that run side by side: at most `at_once`,
    and no more than there are physical cores for their threads, but at least one. The last cores come first: what runs
    by itself is on them."""
    count = max(1, min(at_once, physical_cores() // threads))
    every = cores_for(count * threads)
    return [every[first : first + threads] for first in range(0, count * threads, threads)][::-1]


def check_models(models: Sequence[str]) -> None:
    """Refuse models that there are not, before hours of searches.

    Raises:
        UserError: a name that is neither in the zoo nor a file.
    """
    for model in models:
        name = zoo.name_in(model)
        if name not in zoo.all_names() and not Path(model.removeprefix("file:")).is_file():
            raise UserError(f"--models {model}: neither a file nor in the zoo, which has {', '.join(zoo.all_names())}")


def judging(uri: str, folder: Path, plan: TablePlan, lanes: Sequence[tuple[int, ...]]) -> MakeJudge:
    """Return what makes the judge of a model; inputs, outputs and what processes print lie in `folder`. Sessions that
    are played side by side have the cores of a lane and an equal share of the memory that is left."""

    def make(original: Contestant, contestants: Sequence[Contestant]) -> Judge:
        inputs, outputs = folder / "inputs", folder / "outputs"
        tolerance = write_inputs(uri, plan.protocol.inputs, plan.protocol.seed, inputs, plan.provider)
        outputs.mkdir(parents=True, exist_ok=True)

        stopped = Event()

        def seat(contestant: Contestant, lane: int) -> ProcessSeat:
            return ProcessSeat(contestant, inputs, plan.threads, lanes[lane], folder / "log.txt", stopped)

        check = OutputCheck(outputs, tolerance)
        return Judge(
            original,
            contestants,
            seat,
            check,
            plan.protocol,
            room=lambda size: room(size) // len(lanes),
            stopped=stopped,
        )

    return make
