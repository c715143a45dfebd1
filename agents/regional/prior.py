"""Priors of the screen: what steps are hoped to save before anything is known of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from agents.effects.own_means import means_here
from agents.effects.step_means import ChainStep, Forecast
from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import Deployment

if TYPE_CHECKING:
    from agents.universal.opinion import Opinion

PriorName = Literal["constants", "means", "effects", "universal"]


class EffectPrior(Protocol):
    """Says what steps of a window are hoped to save, as `agents.universal.prior.UniversalPrior` does."""

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        """Return the share of the window's time that each step of a state is hoped to save beyond `share`, which the
        `depth` rewrites before it save; None where nothing can be said."""
        ...


@runtime_checkable
class StepPrior(Protocol):
    """Forecasts what steps save, as `agents.effects.step_means.StepMeans` does by their rules and shapes, and
    `agents.effects.prior.LearntPrior` by the window."""

    def forecasts(
        self, steps: Sequence[Candidate], chains: Sequence[ChainStep], share: float, depth: int
    ) -> list[Forecast | None]:
        """Return what each step of a state is expected to save beyond `share`, which the `depth` rewrites before it
        save; None where nothing is known.

        Args:
            chains: the steps as means know them.
        """
        ...


@runtime_checkable
class ChainPolicy(EffectPrior, Protocol):
    """A prior that also chooses steps, as `agents.universal.prior.UniversalPrior` does: it can propose whole chains."""

    def opinion(self, steps: Sequence[Candidate], depth: int) -> Opinion | None:
        """Return probabilities and predicted effects of the steps of a state that `depth` rewrites led to; None where
        nothing can be said."""
        ...


Prior = EffectPrior | StepPrior


class PolicyOnDemand:
    """A policy that is loaded when it is first asked: PyTorch takes seconds, and a draft asks for none.

    Args:
        load: loads the policy.
    """

    def __init__(self, load: Callable[[], ChainPolicy]) -> None:
        self._load = load
        self._policy: ChainPolicy | None = None

    @property
    def was_asked(self) -> bool:
        """True once anything was asked."""
        return self._policy is not None

    def opinion(self, steps: Sequence[Candidate], depth: int) -> Opinion | None:
        """Return the policy's opinion of the steps of a state."""
        return self._loaded().opinion(steps, depth)

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        """Return what the policy hopes of steps."""
        return self._loaded().hopes(steps, share, depth)

    def _loaded(self) -> ChainPolicy:
        if self._policy is None:
            self._policy = self._load()
        return self._policy


@dataclass(frozen=True, slots=True)
class ProposingPrior:
    """A policy that proposes chains, in front of a prior that orders everything else: what the policy does not know is
    tried as if there were none.

    Args:
        policy: proposes chains, and predicts what they save.
        others: forecasts what all steps save that are not proposed.
    """

    policy: ChainPolicy
    others: StepPrior

    def opinion(self, steps: Sequence[Candidate], depth: int) -> Opinion | None:
        """Return the policy's opinion of the steps of a state."""
        return self.policy.opinion(steps, depth)

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        """Return what the policy hopes of steps."""
        return self.policy.hopes(steps, share, depth)

    def forecasts(
        self, steps: Sequence[Candidate], chains: Sequence[ChainStep], share: float, depth: int
    ) -> list[Forecast | None]:
        """Return what the other prior forecasts of steps."""
        return self.others.forecasts(steps, chains, share, depth)


def forecasting(deployment: Deployment) -> StepPrior:
    """Return the prior that knows most of a deployment: the model of effects, which was trained on ONNX Runtime's CPU
    kernels, and means for all other runtimes.

    Raises:
        UserError: what ships is missing, or of another format.
    """
    if not (deployment.facts.is_cpu and deployment.facts.is_onnxruntime):
        return means_here(deployment)
    # Here, since it loads Gymnasium.
    from agents.effects.prior import LearntPrior

    return LearntPrior.shipped(deployment)


def proposing(policy: ChainPolicy, deployment: Deployment) -> Prior:
    """Return a policy in front of what forecasts steps for a deployment; the policy alone, with a warning, where that
    is missing."""
    try:
        return ProposingPrior(policy, forecasting(deployment))
    except UserError as error:
        warnings.warn(f"regional: the policy alone predicts, since {error}", RuntimeWarning, stacklevel=2)
        return policy


def prior_of(name: PriorName, deployment: Deployment) -> Prior | None:
    """Return a prior by its name; None for the constants of the options, which also stand in, with a warning, where the
    means, the model of effects, the policy, or a library that they need is missing."""
    if name == "constants":
        return None
    try:
        if name == "means":
            return means_here(deployment)
        if name == "effects":
            return forecasting(deployment)
        # Here, since PyTorch takes seconds and need not be installed.
        from agents.universal.prior import UniversalPrior

        return proposing(UniversalPrior.shipped(deployment), deployment)
    except (ImportError, UserError) as error:
        warnings.warn(
            f"regional: nothing is predicted, since {error}; constants are used", RuntimeWarning, stacklevel=2
        )
        return None
