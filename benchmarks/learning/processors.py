"""Score forecasts of what steps save on a processor that they do not know, and with some minutes of its own timings.

    python -m benchmarks.learning.processors

takes tables of windows of other processors, and one of the processor in question. Each architecture is left out in
turn, in all tables. The forecasts of its steps on that processor are compared with what was timed: by means of the
others' timings alone, with some minutes of the processor's own on top, drawn at random, and with all; and by a model of
effects of the others' timings, which the processor's own correct likewise. It measures nothing itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.effects.learning_means import MeansLearner, Part, means_of, means_on
from agents.effects.prior import savings
from agents.effects.samples import samples_of
from agents.effects.step_means import MOST_LOST, Forecast, StepMeans
from agents.effects.training import EffectTraining, train
from agents.reporting.runs import write_json
from benchmarks import RESULTS
from benchmarks.figures.tables import markdown
from benchmarks.learning.window_policy import parts_of_families
from benchmarks.protocol.searches.held_out import FURTHER
from envs.window.joining import joined
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.experience.validation import spearman
from graph_rewrite.latency.device import processor_kind
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command

LEAST_GAIN = 0.02
"""Share of its window's time that the best first step must save at least for a window to be asked for it."""
LEAST_STEPS = 5
"""First steps that such a window must have."""
FIRST = 3
"""The best first step should be among so many."""
PARTS = 4
"""Parts of the architectures; a model of effects is trained without each."""
MODEL = EffectTraining(members=3)
HEADINGS = (
    "by",
    "timings of the processor",
    "error, itself",
    "error, at best",
    "rank",
    "best first step in the first 3",
)


@dataclass(frozen=True)
class Arguments:
    """Score forecasts across processors."""

    others: tuple[Path, ...] = (SHIPPED, *FURTHER[:-1])
    """Tables of windows of other processors."""
    own: Path = FURTHER[-1]
    """A table of windows of the processor in question."""
    minutes: tuple[float, ...] = (1.0, 3.0, 10.0)
    """Minutes of the processor's own timings."""
    seeds: int = 3
    """Draws of the windows that make up so many minutes."""
    out: Path = RESULTS / "learning" / "processors.json"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True, slots=True)
class ForecastScore:
    """The fit of forecasts, over all steps of all architectures left out."""

    by: str
    """What makes the forecasts: means, or a model of effects."""
    timings: str
    """What it was told of the processor."""
    own_error: float
    """Root mean square error of what steps save by themselves, in shares of the window's time."""
    best_error: float
    """The same of what they lead to at best."""
    rank: float
    """Rank correlation of forecast and gain in an architecture, mean over architectures by their steps."""
    first: float
    """Share of windows whose best first step is among the three that are forecast to gain most."""

    def cells(self) -> list[str]:
        """Return the row of the table."""
        return [
            self.by,
            self.timings,
            f"{self.own_error:.4f}",
            f"{self.best_error:.4f}",
            f"{self.rank:.3f}",
            f"{self.first:.0%}",
        ]


@dataclass(frozen=True, slots=True)
class _Fold:
    """Forecasts and gains of the steps of an architecture."""

    own: NDArray[np.float64]
    """Rows of forecast and gain of the steps themselves."""
    best: NDArray[np.float64]
    """The same of what they lead to."""
    hits: list[bool]


class Processors:
    """Forecasts steps of one table by means of it and of others.

    Args:
        others: of other processors.
        own: of the processor in question.
    """

    def __init__(self, others: Sequence[WindowTable], own: WindowTable) -> None:
        self._others = [(MeansLearner(other), [window.family for window in other.windows]) for other in others]
        self._table, self._all_others = own, joined(others)
        self._own_families = [window.family for window in own.windows]
        self._own = MeansLearner(own)
        arrays = own.arrays
        self._seconds = np.bincount(
            arrays["state_window"][own.step_states()], arrays["step_cost"].astype(np.float64), len(own.windows)
        )
        self._roots = arrays["window_root"]
        self._start = arrays["step_start"]
        (kind,) = {processor_kind(window.device) for window in own.windows}
        self._kind = kind

    def families(self) -> list[str]:
        """Return the architectures of the processor's own table."""
        return sorted(set(self._own_families))

    def drawn(self, family: str, minutes: float, seed: int) -> list[int]:
        """Return windows of other architectures, drawn until their timings took so many minutes; all for infinity."""
        windows = [number for number, one in enumerate(self._own_families) if one != family]
        order = np.random.default_rng(seed).permutation(windows).tolist()
        before = np.cumsum([0.0, *(self._seconds[number] for number in order)])[:-1]
        return [number for number, spent in zip(order, before.tolist(), strict=True) if spent < 60.0 * minutes]

    def means(self, family: str, windows: Sequence[int], *, alone: bool = False) -> StepMeans:
        """Return means that know nothing of an architecture.

        Args:
            windows: of the processor's own, that count too.
            alone: whether they count alone.
        """
        parts: list[Part] = [(self._own, windows)]
        if not alone:
            parts += [
                (learner, [number for number, one in enumerate(families) if one != family])
                for learner, families in self._others
            ]
        return means_of(parts) if alone or not windows else means_on(parts, self._kind)

    def predicted(self, families: Sequence[str], settings: EffectTraining) -> dict[int, Forecast]:
        """Return what a model of effects predicts of the processor's steps of some architectures, by their numbers. It
        is trained on other architectures, on the other processors."""
        others, found = self._all_others, dict[int, Forecast]()
        seen = [number for number, window in enumerate(others.windows) if window.family not in families]
        model = train(list(samples_of(others, seen)), settings)
        inside = [number for number, one in enumerate(self._own_families) if one in families]
        for sample in samples_of(self._table, inside):
            steps = range(sample.first_step, sample.first_step + len(sample.effects))
            told = savings(sample.share, *model.predict_both([sample]), [0.0] * len(steps))
            found |= dict(zip(steps, told, strict=True))
        return found

    def fold(self, family: str, means: StepMeans, predicted: Mapping[int, Forecast] | None = None) -> _Fold:
        """Return how means forecast the steps of an architecture.

        Args:
            predicted: what a model of effects predicts, by the numbers of the steps, which the means then correct.
        """
        inside = [number for number, one in enumerate(self._own_families) if one == family]
        numbers = self._own.timed(inside)
        rows = {
            own: np.column_stack([
                [self._forecast(means, step, predicted, own=own) for step in numbers.tolist()],
                self._own.gains(numbers, own=own).values,
            ])
            for own in (True, False)
        }  # fmt: skip
        gain = dict(zip(numbers.tolist(), rows[False].tolist(), strict=True))
        return _Fold(
            rows[True], rows[False], [hit for number in inside if (hit := self._hit(number, gain)) is not None]
        )

    def _forecast(self, means: StepMeans, step: int, predicted: Mapping[int, Forecast] | None, *, own: bool) -> float:
        learner = self._own
        found = learner.forecast(means, step) if predicted is None else learner.corrected(means, step, predicted[step])
        if found is None or found.own is None:
            return self._own.on_line(means, step)
        return max(found.own.mean if own else found.mean, -MOST_LOST)  # gains are cut off there too

    def _hit(self, window: int, gain: dict[int, list[float]]) -> bool | None:
        """Return whether a window's best first step is forecast among the first; None where it has too few steps, or
        none that gains."""
        root = int(self._roots[window])
        steps = [gain[step] for step in range(int(self._start[root]), int(self._start[root + 1])) if step in gain]
        if len(steps) < LEAST_STEPS or max(after for _, after in steps) < LEAST_GAIN:
            return None
        best = max(steps, key=lambda one: one[1])
        return sum(forecast > best[0] for forecast, _ in steps) < FIRST


def score(by: str, timings: str, folds: Sequence[_Fold]) -> ForecastScore:
    """Return the score of all folds together."""
    own, best = (np.concatenate([getattr(one, name) for one in folds]) for name in ("own", "best"))
    ranked = [one for one in folds if len(one.best) > 2]
    ranks = np.array([spearman(*one.best.T) for one in ranked])
    sizes = np.array([len(one.best) for one in ranked], dtype=np.float64)
    known = np.isfinite(ranks)
    return ForecastScore(
        by, timings, _error(own), _error(best), float(np.average(ranks[known], weights=sizes[known])),
        fmean(hit for one in folds for hit in one.hits),
    )  # fmt: skip


def _error(rows: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean((rows[:, 0] - rows[:, 1]) ** 2)))


def scores(arguments: Arguments, settings: EffectTraining = MODEL) -> list[ForecastScore]:
    """Return the scores of means and of a model of effects, from no timings of the processor to all of them, and of
    means of these alone.

    Args:
        settings: of the training of models.
    """
    own = WindowTable.load(arguments.own)
    both = Processors([WindowTable.load(path) for path in arguments.others], own)
    families = both.families()
    every = {family: both.drawn(family, float("inf"), 0) for family in families}
    predicted: dict[int, Forecast] = {}
    for part in parts_of_families(own, PARTS):
        predicted |= both.predicted(part, settings)
    drawn = {
        "none": [(family, list[int]()) for family in families],
        **{
            f"{minutes:g} min": [
                (family, both.drawn(family, minutes, seed)) for seed in range(arguments.seeds) for family in families
            ]
            for minutes in arguments.minutes
        },
        "all": list(every.items()),
    }
    by_means, by_model = list[ForecastScore](), list[ForecastScore]()
    for timings, pairs in drawn.items():
        learnt = ((family, both.means(family, windows)) for family, windows in pairs)
        known = [(both.fold(family, means), both.fold(family, means, predicted)) for family, means in learnt]
        by_means.append(score("means", timings, [one for one, _ in known]))
        by_model.append(score("model of effects", timings, [other for _, other in known]))
    alone = [both.fold(family, both.means(family, windows, alone=True)) for family, windows in every.items()]
    return [*by_means, *by_model, score("means", "all, without those of others", alone)]


def table(rows: Sequence[ForecastScore]) -> str:
    """Return the scores as Markdown."""
    return markdown([HEADINGS, *(row.cells() for row in rows)]).removesuffix("\n")


def _run(arguments: Arguments) -> int:
    rows = scores(arguments)
    others = [path.name for path in arguments.others]
    found = {"others": others, "own": arguments.own.name, "rows": [asdict(row) for row in rows]}
    write_json(arguments.out, found)
    replace_file(arguments.out.with_suffix(".md"), table(rows) + "\n")
    print(json.dumps(found, indent=2) if arguments.json else table(rows))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.processors")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
