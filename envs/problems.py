"""The problems that episodes start from: models by URI, opened when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypedDict

import numpy as np

from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.enumerator import Granularity
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import MeterSource, Problem, open_problem


class ProblemOptions(TypedDict, total=False):
    """Keywords by which an environment opens its models; defaults are those of `open_problem`."""

    problem: Problem | None
    """An opened problem to use instead of a model's URI; the other keywords here are then without effect."""
    meter: MeterSource | None
    """A latency meter, or a function (model, deployment, workspace) -> meter; ONNX Runtime by default."""
    provider: str
    threads: int
    """The deployment that latencies are measured for."""
    shapes: Mapping[str, tuple[int, ...]] | None
    """Shapes of inputs with symbolic dimensions, by name."""
    rules: str
    """Rule sets that rewrite the graph, separated by commas: default, generated, taso, or all."""
    strict: bool
    """Leave out rules that do not keep NaN, infinities, denormals or the sign of zero."""
    target_opset: int | None
    """The operator set that models are converted to."""
    input_data: Sequence[str]
    """.npz files with inputs to measure and to compare with."""
    custom_ops: Sequence[str]
    """Libraries with operators of custom domains. Only the processes that run the model load them."""
    granularity: Granularity
    """Offer rewrites per `site`, per `class` of alike sites, or `both`."""
    deployment_choices: bool
    """Offer to refuse or keep ONNX Runtime's optimisers."""
    result_limits: ResultLimits | None
    """Size, rounding and operators of every graph; one beyond them counts as one that cannot be run."""


class ProblemSource:
    """Models by URI, each opened once, when it is first needed.

    Args:
        uris: the models, at least one.
        open_one: opens a model by its URI.
    """

    def __init__(self, uris: Sequence[str], open_one: Callable[[str], Problem]) -> None:
        if not uris:
            raise UserError("give at least one model")
        self.uris = tuple(uris)
        self._open = open_one
        self._opened: dict[str, Problem] = {}

    @classmethod
    def from_options(cls, model: str | Sequence[str], options: ProblemOptions) -> Self:
        """Make a source from the keywords of an environment."""
        problem = options.get("problem")
        if problem is not None:
            return cls.of(problem)
        arguments: dict[str, Any] = {name: value for name, value in options.items() if name in _ARGUMENTS}
        uris = (model,) if isinstance(model, str) else tuple(model)
        return cls(uris, partial(open_problem, limits=options.get("result_limits"), **arguments))

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Make a source of one opened problem."""
        source = cls((problem.model.uri,), open_problem)
        source._opened[problem.model.uri] = problem
        return source

    def __getitem__(self, uri: str) -> Problem:
        if uri not in self.uris:
            raise UserError(f"this environment was made with {', '.join(self.uris)}, not with {uri}")
        if uri not in self._opened:
            self._opened[uri] = self._open(uri)
        return self._opened[uri]

    @property
    def first(self) -> Problem:
        """The first model's problem."""
        return self[self.uris[0]]

    def draw(self, random: np.random.Generator) -> Problem:
        """Draw one of the models; with one model alone, no random number is taken."""
        drawn = int(random.integers(len(self.uris))) if len(self.uris) > 1 else 0
        return self[self.uris[drawn]]


_ARGUMENTS = ProblemOptions.__optional_keys__ - {"problem", "result_limits"}
