"""Flags that the command lines share, and the parsing of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from agents.core.config import Config, load_config, model_uri
from graph_rewrite.latency import ProviderChoice
from graph_rewrite.system.cpu_count import check_threads
from graph_rewrite.task.limits import SIZE_GROWTH, ResultLimits
from graph_rewrite.task.models import parse_shapes
from graph_rewrite.task.problem import Problem, open_problem


@dataclass(frozen=True, slots=True)
class ModelArguments:
    """Flags that say which model, and how it will be deployed."""

    model: str = "bert"
    """A name of the zoo, zoo://NAME?layers=2&seq_len=64, or an ONNX file (path or file:PATH)."""
    config: Path | None = None
    """A YAML file of settings, or the name of one in configs/."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting as key=value, such as model.seq_len=256 or ppo.learning_rate=1e-4; may be repeated."""
    shape: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """The shape of an input with symbolic dimensions, as name:1,128; may be repeated."""
    provider: ProviderChoice = "auto"
    """ONNX Runtime's execution provider, cpu or cuda; auto takes CUDA where a device answers. Or another runtime:
    openvino, on the CPU in float32."""
    threads: int = 1
    """Threads per inference in the deployment that is optimised for."""
    fixed_deployment: bool = False
    """Leave ONNX Runtime's optimisers and session settings as they are: no deployment choices for any agent."""
    seed: int = 0
    """Seed of everything that is random."""
    max_size_growth: float = SIZE_GROWTH
    """Most bytes of weights that a result may have, as a multiple of the original's."""
    size_price: float = 0.0
    """Per cent of the latency that weights must save for each per cent that the file grows by them; optimize asks for
    0.1."""
    error_budget: float | None = None
    """Largest difference of any output on several inputs, relative to its scale (default 1e-4 in float32)."""
    standard_ops_only: bool = False
    """Bring in no operators outside the ONNX standard, such as those of com.microsoft."""

    def load(self) -> Config:
        """The configuration with this model's file and the settings."""
        return load_config(self.model, self.config, self.set)

    def uri(self, config: Config, parameters: dict[str, int] | None = None) -> str:
        """The model's URI with the configured parameters, changed by `parameters`."""
        return model_uri(self.model, {**config.model, **(parameters or {})})

    def open(self, config: Config, *, cached: bool = True) -> Problem:
        """The model as a problem; with `cached`, latencies are remembered on disk.

        Raises:
            UserError: more threads than this process may use cores, or another flag that makes no sense.
        """
        check_threads(self.threads)
        return open_problem(
            self.uri(config), provider=self.provider, threads=self.threads, granularity=config.env.granularity,
            deployment_choices=not self.fixed_deployment, shapes=self.shapes(), rules=config.env.rules, cached=cached,
            limits=self.limits(),
        )  # fmt: skip

    def limits(self) -> ResultLimits:
        """Return the limits of every result.

        Raises:
            UserError: a limit that makes no sense.
        """
        return ResultLimits(self.max_size_growth, self.error_budget, self.standard_ops_only, size_price=self.size_price)

    def shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Return input shapes by name.

        Raises:
            UserError: a --shape that is not name:dims.
        """
        return parse_shapes(self.shape) or None


def stderr_console() -> Console:
    """Return the console for people; standard output stays free for results."""
    return Console(stderr=True)
