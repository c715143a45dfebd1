"""The options of an optimisation, as the command line and `rewritegym.optimize` take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import tyro

from agents.optimization.comparison_options import ComparisonOptions
from agents.searching.mutants import MutantChoice
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Clock, ProviderChoice, resolve_provider
from graph_rewrite.rewriting.session_choices import thread_choices
from graph_rewrite.runtime import PROVIDERS
from graph_rewrite.runtime.custom_ops import library_paths
from graph_rewrite.system.cpu_count import check_threads, is_busy, physical_cores
from graph_rewrite.system.durations import parse_seconds
from graph_rewrite.task.limits import SIZE_GROWTH, SIZE_PRICE, ResultLimits

AUTO = "regional"
"""The agent that `auto` stands for: it finds most in a minute or two, on models that nobody prepared."""
BEST: Literal["best"] = "best"
"""The provider that stands for the faster of the CPU's runtimes."""
AUTO_THREADS = "auto"
"""The text that leaves the number of threads to the search."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search: its rules, the deployment that it is for, and its time."""

    shape: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """The shape of an input with symbolic dimensions, as name:1,128, or auto, which is the default; may be repeated,
    for further inputs and for further shapes of one. The search is for the first shape of each input."""
    static: bool = False
    """Write a model with the shapes that the search was for, instead of one that keeps its symbolic dimensions."""
    specialise: bool = False
    """Write a bundle: a folder with the model for all shapes and, for each --shape that gains by it, a model for that
    shape alone. They share their weights, and rewritegym.session picks by the shapes of the inputs."""
    time_limit: str = "120s"
    """Time for everything from loading to writing, such as 90, 120s or 10m."""
    threads: str = ""
    """Threads per inference as deployed; by default one per physical core that this process may use, as ONNX Runtime
    does. Several, such as 1,4: the search is for the first, and the result is measured with each. With auto, the search
    chooses the number."""
    provider: ProviderChoice | Literal["best"] = "auto"
    """ONNX Runtime's execution provider, cpu or cuda; auto takes CUDA where a device answers. Or another runtime:
    openvino, on the CPU in float32. With best, half of the time goes to a search in each of cpu and openvino, and the
    faster result is written."""
    agent: str = "auto"
    """The search method, with options: regional, greedy:beam=2, ...; auto is regional, beginning with known
    results."""
    checkpoint: str = ""
    """A folder with a trained policy, for --agent ppo, which it implies."""
    rules: str = "default"
    """Rule sets (default, generated, taso, all) and single rules, separated by commas."""
    skip_rules: str = ""
    """Rules or rule sets to leave out, separated by commas."""
    mutants: MutantChoice = "off"
    """Programs that nobody wrote as a rule: search looks for them in this model, in a part of the time limit; shipped
    takes those that come with RewriteGym."""
    standard_ops_only: bool = False
    """Bring in no operators outside the ONNX standard, such as those of com.microsoft."""
    fixed_deployment: bool = False
    """Leave ONNX Runtime's optimisers and session settings as they are."""
    max_size_growth: float = SIZE_GROWTH
    """Most bytes of weights that the result may have, as a multiple of the original's."""
    size_price: float = SIZE_PRICE
    """Per cent of the latency that weights must save for each per cent that the file grows by them; 0 for no price."""
    save_as_external_data: bool = False
    """Put the weights of the result into a file beside it, <output>.data, as for results of more than 256 MiB."""
    target_opset: int | None = None
    """Operator set to convert the model to (default 23, or the newest below it that ONNX Runtime can run it in)."""
    custom_ops: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A library (.so, .dylib, .dll) with operators of custom domains that the model uses; may be repeated. Its code is
    run: name none that you do not trust."""
    cpu_clock: bool = False
    """Count the time that the thread computes, for a machine that runs other things too; needs --threads 1, where it is
    done by itself once all cores are busy."""
    memory: bool = True
    """Results are remembered: with --agent auto, the one that an earlier search found for a model of the same structure
    is tried first. --no-memory switches this off."""
    search_again: bool = False
    """Search anew although a result is remembered, beginning with that."""
    seed: int = 0
    """Seed of everything that is random."""


# The search's own options come first in the help, and fields of the last base are the first.
@dataclass(frozen=True)
class OptimizeOptions(ComparisonOptions, SearchOptions):
    """Options of the search, its measurements and its result."""

    # Properties read the options that are texts, and raise UserError for a mistake in one.

    @property
    def seconds(self) -> float:
        """The time limit in seconds."""
        return parse_seconds(self.time_limit)

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of threads: of the search, and others that the result is measured with."""
        return parse_threads(self.threads, cpu_clock=self.cpu_clock)

    @property
    def thread_choices(self) -> tuple[int, ...]:
        """Numbers of threads that the search may choose instead; none unless the threads are `auto`."""
        if self.threads.strip().lower() != AUTO_THREADS or self.thread_counts == (1,):
            return ()
        if self.fixed_deployment:
            raise UserError("--threads auto chooses the number of threads, and --fixed-deployment forbids it")
        return thread_choices()

    @property
    def rule_names(self) -> str:
        """Rules to search with, as `graph_rewrite.rules.rule_set` takes them."""
        return ",".join([self.rules, *(f"-{name.strip()}" for name in self.skip_rules.split(",") if name.strip())])

    @property
    def agent_spec(self) -> str:
        """The agent, as `agents.core.registry.make_agent` takes it."""
        if self.checkpoint:
            if self.agent not in ("auto", "ppo"):
                raise UserError(f"--checkpoint is for --agent ppo, not for {self.agent}")
            return f"ppo:checkpoint={self.checkpoint}"
        return AUTO if self.agent == "auto" else self.agent

    @property
    def clock(self) -> Clock:
        """The clock of all measurements, as far as it was asked for."""
        return "cpu" if self.cpu_clock else "wall"

    def clock_of(self, threads: int) -> Clock:
        """The clock of measurements with a number of threads: the thread's own also for one thread of the CPU on a
        machine whose cores are all busy, where the time that passes tells little."""
        may_be_own = threads == 1 and not self.thread_choices and PROVIDERS[resolve_provider(self.provider)].is_cpu
        return "cpu" if may_be_own and is_busy() else self.clock

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries of operators, as absolute paths."""
        return library_paths(self.custom_ops)

    @property
    def limits(self) -> ResultLimits:
        """The limits that every result keeps."""
        return self.limits_with(
            size_growth=self.max_size_growth, standard_ops_only=self.standard_ops_only, size_price=self.size_price
        )


def shape_texts(shapes: Mapping[str, Sequence[int]] | Iterable[Mapping[str, Sequence[int]]]) -> tuple[str, ...]:
    """Return shapes by input name, or several such mappings, as the texts of `--shape`."""
    every = [shapes] if isinstance(shapes, Mapping) else shapes
    return tuple(f"{name}:{','.join(str(int(dim)) for dim in s)}" for one in every for name, s in one.items())


def threads_text(threads: int | str | Iterable[int] | None) -> str:
    """Return numbers of threads as the text of `--threads`."""
    if threads is None:
        return ""
    return str(threads) if isinstance(threads, (int, str)) else ",".join(map(str, threads))


def parse_threads(text: str, *, cpu_clock: bool = False) -> tuple[int, ...]:
    """Return numbers of threads out of a text such as `4` or `1,4`; one per physical core for none, and for `auto`,
    where the search begins with them.

    Raises:
        UserError: no positive numbers, more threads than cores, or the CPU's clock for more than one thread.
    """
    parts = [part.strip() for part in text.split(",")]
    if text.strip().lower() in ("", AUTO_THREADS):
        parts = [str(physical_cores())]
    if not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        raise UserError(f"--threads {text[:100]!r}: write a number, several such as 1,4, or {AUTO_THREADS}")
    counts = tuple(dict.fromkeys(check_threads(int(part)) for part in parts))
    if cpu_clock and counts != (1,):
        raise UserError("--cpu-clock counts one thread: add --threads 1")
    return counts
