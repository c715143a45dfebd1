"""Score a policy of windows on architectures that it has not seen.

    python train.py --windows --without resnet --without bert
    python -m benchmarks.learning.window_policy runs/FOLDER
    python -m benchmarks.learning.window_policy --folds 5

The first form scores a checkpoint, on the windows that its training left out. The second trains one policy for each
part of the architectures, without that part, and scores it there. A score is the mean share of a window's time that
the chains save, beside those of the best chains that were measured (which nobody can know), of random actions, of
stopping at once, of the steps that a model of effects predicts to lead to most, and of those to which means forecast
the largest gain; both are learnt from the same windows. With --keep the model is kept beside the policy.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console

from agents.commands.common import stderr_console
from agents.core.config import Config, load_config
from agents.effects.learning_means import MeansLearner, means_by_kind, means_of
from agents.effects.model import EffectPredictor
from agents.effects.samples import samples_of
from agents.effects.stored import DESCRIPTION as EFFECTS
from agents.effects.stored import ChainPredictor, PlainPredictor
from agents.effects.training import EffectTraining, train
from agents.ppo.checkpoint import Checkpoint, load_checkpoint
from agents.ppo.description import CheckpointError, read_description
from agents.ppo.training_state import load_state
from agents.reporting.progress import table_of
from agents.universal.prior import restore_window_policy
from agents.universal.rollouts import (
    STOP,
    Choices,
    best_shares,
    effect_choices,
    policy_choices,
    random_shares,
    saved_shares,
)
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from benchmarks.learning.reports import tell_report
from envs.window.table import WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.latency.device import machine_kind
from graph_rewrite.system.commands import run_command

RESAMPLES = 2000
Shares = dict[str, NDArray[np.float64]]
"""Shares that are saved in each window, by method."""


@dataclass(frozen=True)
class Arguments:
    """Score a policy of windows on architectures that it has not seen."""

    checkpoint: Annotated[Path | None, tyro.conf.Positional] = None
    """A checkpoint or run folder of train.py --windows."""
    folds: int = 0
    """Train as many policies in place of a checkpoint, each without another part of the architectures."""
    families: tuple[str, ...] = ()
    """Architectures to score on; by default those that the checkpoint's training left out."""
    table: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A table of windows; may be repeated; by default the one that ships."""
    least_chains: int = 2
    """Chains that must have been timed in a window: with one, there is little to choose."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """With --folds: a setting of the training as key=value; may be repeated."""
    seed: int = 0
    """With --folds: seed of the trainings."""
    keep: Path | None = None
    """With --folds: folder for the checkpoints, one for each part; one that is there is not trained again."""
    out: Path | None = None
    """File for the scores, which are printed too."""


def shares_of(
    checkpoint: Checkpoint, effects: ChainPredictor | None, table: WindowTable, windows: Sequence[int]
) -> Shares:
    """Return the shares that the policy of a checkpoint and its rivals save in some windows.

    Raises:
        CheckpointError: the checkpoint is of no training on windows, or does not fit this version.
    """
    policy, described = restore_window_policy(checkpoint), checkpoint.description
    seen = [number for number, one in enumerate(table.windows) if one.family not in described.left_out]
    effects, unknown = effects or effects_of(table, seen), list(samples_of(table, windows))
    return {
        "policy": saved_shares(table, windows, policy_choices(policy, table, windows, described.env.horizon)),
        "best chain": best_shares(table, windows),
        "means": saved_shares(table, windows, means_choices(table, seen, windows)),
        "effect model": saved_shares(table, windows, effect_choices(effects, table, unknown)),
        "random": random_shares(table, windows),
        "stop": np.zeros(len(windows)),
    }


def effects_of(table: WindowTable, seen: Sequence[int]) -> EffectPredictor:
    """Return a model of effects that is trained on some windows of a table."""
    return train(list(samples_of(table, seen)), EffectTraining(members=3))


def means_choices(table: WindowTable, seen: Sequence[int], windows: Sequence[int]) -> Choices:
    """Return, in each state of some windows, the step to which means forecast the largest gain on the machine of the
    window; to stop where they forecast none.

    Args:
        seen: the windows that means are learnt from.
    """
    part = MeansLearner(table), seen
    general = means_of([part])
    means = {kind: general.extended(own) for kind, own in means_by_kind([part], general).items()}
    choices, start = np.full(table.states, STOP, dtype=np.intp), table.arrays["step_start"]
    for state in np.flatnonzero(np.isin(table.arrays["state_window"], list(windows))).tolist():
        window = table.windows[table.arrays["state_window"][state]]
        own = means.get(machine_kind(window.provider, window.device), general)
        forecasts = [part[0].forecast(own, step) for step in range(int(start[state]), int(start[state + 1]))]
        gains = [-np.inf if forecast is None else forecast.mean for forecast in forecasts]
        if max(gains, default=0.0) > 0.0:
            choices[state] = int(np.argmax(gains))
    return choices


def summary(shares: Shares, families: Sequence[str]) -> dict[str, Any]:
    """Return the mean of each method, and the mean by which the policy is ahead of it, with its 95% bootstrap interval,
    all in percent of a window's time; each architecture is a stratum whose windows are drawn.

    Args:
        shares: by method, of which `policy` is one.
        families: architecture of each window.
    """
    rows = [np.flatnonzero(np.array(families) == family) for family in sorted(set(families))]
    random, found = np.random.default_rng(0), {}
    drawn = [np.concatenate([random.choice(one, len(one)) for one in rows]) for _ in range(RESAMPLES)]
    for name, saved in shares.items():
        ahead = 100.0 * (shares["policy"] - saved)
        ends = np.percentile([ahead[one].mean() for one in drawn], [2.5, 97.5])
        found[name] = {
            "saved_percent": round(float(100.0 * saved.mean()), 3),
            "policy_ahead_percent": round(float(ahead.mean()), 3), "ci95": [round(float(end), 3) for end in ends],
        }  # fmt: skip
    return found


def _windows(table: WindowTable, families: Sequence[str], least_chains: int) -> list[int]:
    """Return the numbers of the windows to score on.

    Raises:
        UserError: an unknown architecture, or no window is left.
    """
    unknown = set(families) - {window.family for window in table.windows}
    if unknown:
        raise UserError(f"no window of the table is of {', '.join(sorted(unknown))}")
    found = [n for n, one in enumerate(table.windows) if one.family in families and one.chains >= least_chains]
    if not found:
        raise UserError("no window is left to score on: choose other families, or --least-chains 1")
    return found


def parts_of_families(table: WindowTable, folds: int) -> Iterator[tuple[str, ...]]:
    """Yield the architectures in so many parts, each of about as many windows as the others."""
    names = [window.family for window in table.windows]
    families = sorted(set(names), key=lambda name: (-names.count(name), name))
    if not 2 <= folds <= len(families):
        raise UserError(f"--folds must be from 2 to {len(families)}, the architectures of the table, not {folds}")
    for first in range(folds):
        yield tuple(sorted(families[first::folds]))


def _scored_checkpoint(arguments: Arguments, table: WindowTable) -> dict[str, Any]:
    assert arguments.checkpoint is not None
    checkpoint = load_checkpoint(arguments.checkpoint)
    families = arguments.families or checkpoint.description.left_out
    if not families:
        raise UserError(
            f"{arguments.checkpoint}: its training left nothing out: name --families, which it has seen, or score "
            "trainings of their own with --folds 5"
        )
    windows = _windows(table, families, arguments.least_chains)
    names = [table.windows[number].family for number in windows]
    return {
        "checkpoint": str(arguments.checkpoint), "trained_on": checkpoint.description.trained_on,
        "families": list(families), "held_out": set(families) <= set(checkpoint.description.left_out),
        "windows": len(windows), "methods": summary(shares_of(checkpoint, None, table, windows), names),
    }  # fmt: skip


def _is_trained(folder: Path, trainer: WindowTrainer) -> bool:
    """Tell whether a folder has the checkpoint of such a training, carried through."""
    try:
        _, described = read_description(folder)
    except CheckpointError:
        return False
    state, config = load_state(folder), trainer.config
    return (
        (described.trained_on, described.left_out) == (trainer.trained_on, trainer.options.without)
        and state is not None
        and state.progress.epochs >= config.pretraining.epochs
        and described.timesteps >= config.training.total_timesteps
    )


def _scored_folds(arguments: Arguments, console: Console) -> dict[str, Any]:
    config: Config = load_config("windows", settings=arguments.set)
    options = WindowTrainingOptions.load(arguments.table, (), arguments.seed)
    table = options.table
    found, numbers = list[Shares](), list[int]()
    for number, part in enumerate(parts_of_families(table, arguments.folds)):
        with tempfile.TemporaryDirectory() as scratch:
            folder = (arguments.keep or Path(scratch)) / f"seed-{arguments.seed}-part-{number}"
            trainer = WindowTrainer(replace(options, without=part), config, folder)
            known = _is_trained(folder, trainer)
            if not known:
                trainer.run()
            if not known or not (folder / EFFECTS).exists():
                effects_of(table, [n for n, one in enumerate(table.windows) if one.family not in part]).save(folder)
            trainer.close()
            windows = _windows(table, part, arguments.least_chains)
            found.append(shares_of(load_checkpoint(folder), PlainPredictor.load(folder), table, windows))
        numbers += windows
        means = ", ".join(f"{name} {saved.mean():.2%}" for name, saved in found[-1].items())
        console.print(f"without {', '.join(part)}: {means}", highlight=False, soft_wrap=True)
    shares = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    names = [table.windows[number].family for number in numbers]
    return {
        "folds": arguments.folds, "tables": options.name, "seed": arguments.seed, "settings": list(arguments.set),
        "families": sorted(set(names)), "held_out": True, "windows": len(numbers), "methods": summary(shares, names),
    }  # fmt: skip


def _run(arguments: Arguments) -> int:
    if (arguments.checkpoint is None) == (arguments.folds == 0):
        raise UserError("name a checkpoint, or --folds for trainings of their own")
    console = stderr_console()
    if arguments.checkpoint is None:
        report = _scored_folds(arguments, console)
    else:
        report = _scored_checkpoint(arguments, WindowTrainingOptions.load(arguments.table, ()).table)
    shown = table_of(f"{report['windows']} windows", ("method",), ("saves", "policy ahead by", "95% interval"))
    for name, score in report["methods"].items():
        low, high = score["ci95"]
        saved, ahead = score["saved_percent"], score["policy_ahead_percent"]
        shown.add_row(name, f"{saved:.2f}%", f"{ahead:+.2f}%", f"{low:+.2f}% to {high:+.2f}%")
    console.print(shown)
    tell_report(report, arguments.out)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.window_policy")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
