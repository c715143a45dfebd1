"""Searches that know nothing of the model's family of architectures: the controls `regional-held-out` and
`ppo-held-out`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agents.core.paths import checkpoints
from agents.effects.learning_means import MeansLearner, means_on
from agents.effects.prior import SHIPPED as MODEL
from agents.effects.prior import LearntPrior
from agents.effects.step_means import StepMeans
from agents.effects.stored import PlainPredictor
from agents.policy_agent import StoredPolicy
from agents.ppo.description import DESCRIPTION, UNIVERSAL, read_description
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from agents.regional.prior import PolicyOnDemand, Prior, ProposingPrior, StepPrior
from benchmarks import RESULTS
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.latency.device import processor_kind
from graph_rewrite.task.problem import Problem

HELD_OUT = "held-out"
"""The name of the control by means, in the place of an agent's."""
PPO_HELD_OUT = "ppo-held-out"
"""The name of the control by a policy in front of such means."""
POLICIES = Path(__file__).parents[3] / "runs" / "held-out"
"""Folder of checkpoints whose trainings left families out."""
_PROCESSORS = (
    "intel-xeon-6-85", "amd-epyc-25-17", "amd-epyc-26-2", "intel-xeon-6-207", "intel-xeon-6-167", "amd-epyc-25-1",
)  # fmt: skip
FURTHER = tuple(RESULTS / "learning" / f"windows-{name}.npz" for name in _PROCESSORS)
"""Tables of windows beside the shipped one; the first has generated networks alone, and few rules."""


def family_of(tables: Sequence[WindowTable], model: str) -> str | None:
    """Return the family that tables have of a model of the zoo; None where its architecture is in none of them."""
    uri = f"zoo://{model}"
    found = {one.family for table in tables for one in table.windows if one.model.partition("?")[0] == uri}
    return min(found, default=None)


def means_without(
    family: str | None, learners: Sequence[MeansLearner], tables: Sequence[WindowTable], kind: str
) -> StepMeans:
    """Return means for a kind of processor that are learnt from all windows but those of a family; of all where there
    is none."""
    others = [[n for n, one in enumerate(table.windows) if one.family != family] for table in tables]
    return means_on(list(zip(learners, others, strict=True)), kind)


def held_out_effects(family: str | None, folder: Path = POLICIES) -> PlainPredictor:
    """Return a model of effects that was trained without a family; where there is none, the one that ships.

    Raises:
        UserError: there is none.
        CheckpointError: a policy beside such a model cannot be read.
    """
    return PlainPredictor.load(MODEL if family is None else held_out_policy(family, folder))


def _prior_for(model: str, paths: Sequence[Path], folder: Path) -> tuple[Path, Callable[[Problem], StepPrior]]:
    """Return the folder of what was trained without the family of a model, and what makes the prior that forecasts
    steps: a model of effects and means that are learnt without it."""
    tables = [WindowTable.load(path) for path in paths]
    family = family_of(tables, model)
    means = means_without(family, [MeansLearner(table) for table in tables], tables, processor_kind())
    effects = held_out_effects(family, folder)
    return held_out_policy(family, folder), lambda problem: LearntPrior(effects, problem.deployment, means)


def held_out_regional(
    model: str, paths: Sequence[Path] = (SHIPPED, *FURTHER), folder: Path = POLICIES
) -> RegionalAgent:
    """Return the agent `regional` for a model of the zoo, with such a prior.

    Args:
        paths: tables of windows.
        folder: of what was trained without families.

    Raises:
        UserError: nothing was trained without the family.
    """
    agent = RegionalAgent()
    agent.prior_for = _prior_for(model, paths, folder)[1]
    return agent


def held_out_policy(family: str | None, folder: Path = POLICIES) -> Path:
    """Return the first checkpoint in a folder whose training left a family out; where there is no family, so that no
    training had it, the universal policy.

    Raises:
        UserError: there is none.
        CheckpointError: one cannot be read.
    """
    if family is None:
        return checkpoints() / UNIVERSAL
    for path in sorted(folder.glob(f"**/{DESCRIPTION}")):
        if family in read_description(path.parent)[1].left_out:
            return path.parent
    raise UserError(
        f"{folder}: no policy was trained without the family {family}; train some with: "
        "python -m benchmarks.learning.window_policy --folds 4 --keep runs/held-out"
    )


def held_out_ppo(model: str, paths: Sequence[Path] = (SHIPPED, *FURTHER), folder: Path = POLICIES) -> RegionalAgent:
    """Return what agent `ppo` does with a policy in whose training a model's family was left out, and such a prior.

    Args:
        paths: tables of windows.
        folder: of the policies and models of effects.

    Raises:
        UserError: nothing was trained without the family.
    """
    trained, others = _prior_for(model, paths, folder)
    policy = StoredPolicy.of(trained)

    def proposing(problem: Problem) -> Prior:
        return ProposingPrior(PolicyOnDemand(lambda: policy.prior(problem.deployment)), others(problem))

    agent = RegionalAgent(RegionalOptions(prior="universal"))
    agent.prior_for = proposing
    return agent


MAKERS: Mapping[str, Callable[[str], RegionalAgent]] = {HELD_OUT: held_out_regional, PPO_HELD_OUT: held_out_ppo}
"""Makes the agent of each control for a model."""
