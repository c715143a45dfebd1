"""Train models of effects on experience, and score them on families of networks that they have not seen.

    python -m benchmarks.learning.effect_model experience.jsonl.xz --out effect_models.json

prints, for each model, the rank correlation with what was measured, the share of windows whose best first step is among
three, and the coverage of its 90% intervals. The same experience gives the same figures on one machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from agents.commands.common import stderr_console
from agents.effects.evaluation import StatePredictor, TabulatedEffects, ceiling, repeatability
from agents.effects.samples import StateSample, samples_of
from agents.effects.tabulating import tabulated
from agents.effects.training import EffectTraining, train
from agents.effects.trees import TreePredictor, TreeSettings
from benchmarks.learning.reports import tell_report
from benchmarks.protocol.searches.held_out import FURTHER
from envs.window.table import WindowTable
from envs.window.tabulation import Tabulation
from graph_rewrite.experience.exchange import labels_of
from graph_rewrite.experience.means import MeanEffects
from graph_rewrite.experience.records import Label
from graph_rewrite.experience.validation import held_out_predictions, most_precise, scores_by_family
from graph_rewrite.system.commands import run_command

Model = Literal["means", "trees", "plain", "graph"]
PRECISE = 0.05
"""Half of the 95% interval, in shares of the window's time, up to which a label counts as precise."""


@dataclass(frozen=True)
class Arguments:
    """Train models of effects, and score them."""

    experience: Annotated[Path, tyro.conf.Positional]
    """A store of experience, or an export of one."""
    out: Path | None = None
    """File for the scores, which are printed too."""
    further: tuple[Path, ...] = FURTHER
    """Tables of windows of other processors: models learn from them too, as the one that ships does, but means do
    not."""
    models: tuple[Model, ...] = ("means", "trees", "plain")
    """Models to score: means of rules, boosted trees and a perceptron over plain features, graph attention (which takes
    longest)."""
    folds: int | None = None
    """Parts into which the families are divided, each left out as a whole; by default one family at a time."""
    epochs: int = 20
    """Passes over the samples."""
    members: int = 3
    """Networks that are trained from different seeds, and predict together."""
    seed: int = 0


def _run(arguments: Arguments) -> int:
    console = stderr_console()
    labels = list(labels_of(arguments.experience))
    made = tabulated(labels)
    console.print(f"{len(labels)} labels, {made.used} chains in {len(made.table.windows)} windows", highlight=False)
    known = [label for label in labels if label.id in made.step_of]
    samples = list(samples_of(made.table))
    tables = map(WindowTable.load, arguments.further)
    further = [(table.windows[one.window].family, one) for table in tables for one in samples_of(table)]
    settings = EffectTraining("plain", arguments.members, arguments.epochs, seed=arguments.seed)
    report: dict[str, Any] = {
        "labels": len(labels), "scored": len(known), "chains": made.used, "windows": len(made.table.windows),
        "repeatability": repeatability(known), "ceiling": ceiling(most_precise(known)),
        "precise_ceiling": ceiling([label for label in most_precise(known) if label.half_of_window <= PRECISE]),
        "models": {}, "precise": {},
    }  # fmt: skip
    for name in arguments.models:
        rows = held_out_predictions(known, _fitting(name, made, samples, further, settings), arguments.folds)
        for title, chosen in (
            ("models", rows),
            ("precise", [row for row in rows if row.label.half_of_window <= PRECISE]),
        ):
            if chosen:
                scores = scores_by_family(chosen)
                report[title][name] = {family or "all": score.to_json() for family, score in scores.items()}
                console.print(f"{title}, {name}: {json.dumps(report[title][name]['all'])}", highlight=False)
    tell_report(report, arguments.out)
    return 0


def _fitting(
    name: Model, made: Tabulation, samples: Sequence[StateSample], further: Sequence[tuple[str, StateSample]],
    settings: EffectTraining,
) -> Any:  # fmt: skip
    """Return what makes a model out of the labels of some families."""
    if name == "means":
        return lambda known: MeanEffects().learn(known)
    fit = partial(_fit, made=made, samples=samples, further=further)
    if name == "trees":
        return partial(fit, learn=lambda some: TreePredictor(some, TreeSettings()))
    return partial(fit, learn=lambda some: train(some, replace(settings, kind=name)))


def _fit(
    known: Sequence[Label],
    made: Tabulation,
    samples: Sequence[StateSample],
    further: Sequence[tuple[str, StateSample]],
    learn: Callable[[Sequence[StateSample]], StatePredictor],
) -> TabulatedEffects:
    families = {label.family for label in known}
    windows = made.table.windows
    left_out = {window.family for window in windows} - families
    seen = [one for one in samples if windows[one.window].family not in left_out]
    seen += [one for family, one in further if family not in left_out]
    return TabulatedEffects(learn(seen), samples, made.step_of)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.effect_model")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
