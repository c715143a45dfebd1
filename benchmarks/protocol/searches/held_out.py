"""The control `regional-held-out`: a search whose means know nothing of the model's family of architectures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.effects.learning_means import MeansLearner, means_on
from agents.effects.step_means import StepMeans
from agents.regional.agent import RegionalAgent
from benchmarks import RESULTS
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.latency.device import processor_kind

HELD_OUT = "held-out"
"""The name of the control, in the place of an agent's."""
FURTHER = tuple(
    RESULTS / "learning" / f"windows-{name}.npz" for name in ("amd-epyc-25-17", "intel-xeon-6-207", "intel-xeon-6-167")
)
"""Tables of windows of other processors than that of the shipped table."""


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


def held_out_agent(model: str, paths: Sequence[Path] = (SHIPPED, *FURTHER)) -> RegionalAgent:
    """Return the agent `regional` for a model of the zoo, with such means.

    Args:
        paths: tables of windows.
    """
    tables = [WindowTable.load(path) for path in paths]
    learners = [MeansLearner(table) for table in tables]
    means = means_without(family_of(tables, model), learners, tables, processor_kind())
    agent = RegionalAgent()
    agent.prior_for = lambda problem: means
    return agent
