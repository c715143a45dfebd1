"""Predictions for replayed searches, by what is learnt from other architectures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from agents.core.config import load_config
from agents.effects.learning_means import MeansLearner
from agents.effects.prior import savings
from agents.effects.samples import StateSample, samples_of, state_of
from agents.effects.step_means import Forecast
from agents.effects.training import EffectTraining, train
from agents.ppo.checkpoint import load_checkpoint
from agents.regional.options import DEFAULTS
from agents.regional.proposals import HOPE
from agents.universal.observations import unmeasured
from agents.universal.opinion import Opinion
from agents.universal.prior import opinions, restore_window_policy
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from benchmarks.learning.search_order.replaying import Predictions, Proposal, TableFacts

Maker = Callable[[TableFacts, tuple[str, ...], int], Predictions]
"""Makes predictions for the windows of some families by what is learnt from all others, with a seed."""
_STATES = 64
"""States that are looked at together."""


def _windows(facts: TableFacts, families: Collection[str], inside: bool) -> list[int]:
    return [n for n, window in enumerate(facts.table.windows) if (window.family in families) == inside]


def by_constants(facts: TableFacts, families: tuple[str, ...], seed: int) -> Predictions:
    """Predict nothing: `regional`'s constants order."""
    return Predictions()


def by_means(facts: TableFacts, families: tuple[str, ...], seed: int) -> Predictions:
    """Predict by the means of what steps saved in other architectures, as `regional:prior=means` does."""
    learner, inside = MeansLearner(facts.table), set(_windows(facts, families, inside=True))
    means, windows = learner.learnt(_windows(facts, families, inside=False)), facts.arrays["state_window"]
    steps = (step for step, state in enumerate(facts.state_of) if windows[state] in inside)
    found = {step: forecast for step in steps if (forecast := learner.forecast(means, step)) is not None}
    return Predictions(forecasts=found)


def by_effects(facts: TableFacts, families: tuple[str, ...], seed: int) -> Predictions:
    """Predict by a model of effects, as `regional:prior=effects` does."""
    table = facts.table
    known = list(samples_of(table, _windows(facts, families, False)))
    predictor = train(known, EffectTraining(members=3, seed=seed))
    samples = list(samples_of(table, _windows(facts, families, True)))
    by_mean, found = by_means(facts, families, seed).forecasts, dict[int, Forecast]()
    for begin in range(0, len(samples), _STATES):
        part = samples[begin : begin + _STATES]
        means, deviations = predictor.predict_both(part)
        first = 0
        for sample in part:
            mine, steps = slice(first, first + len(sample.effects)), range(len(sample.effects))
            labels = [one.labels if (one := by_mean.get(sample.first_step + step)) else 0.0 for step in steps]
            saved = savings(sample.share, means[mine], deviations[mine], labels)
            found |= {sample.first_step + step: one for step, one in enumerate(saved)}
            first += len(sample.effects)
    return Predictions(forecasts=found)


def by_policy(facts: TableFacts, families: tuple[str, ...], seed: int) -> Predictions:
    """Propose chains by a universal policy that imitates the best chains, and order everything else by the means, as
    `regional:prior=universal` does."""
    table, config = facts.table, load_config("windows", settings=("training.total_timesteps=0",))
    with tempfile.TemporaryDirectory() as folder:
        options = WindowTrainingOptions(table, "table", tuple(sorted(families)), seed)
        trainer = WindowTrainer(options, config, Path(folder))
        trainer.run()
        trainer.close()
        policy = restore_window_policy(load_checkpoint(folder))
    samples = list(samples_of(table, _windows(facts, families, True)))
    found: dict[int, tuple[StateSample, Opinion]] = {}
    for begin in range(0, len(samples), _STATES):
        part = samples[begin : begin + _STATES]
        seen = [unmeasured(sample.observation, sample.depth, config.env.horizon) for sample in part]
        for sample, opinion in zip(part, opinions(policy, seen), strict=True):
            found[state_of(table, sample)] = (sample, opinion)
    forecasts = by_means(facts, families, seed).forecasts
    return Predictions(forecasts=forecasts, proposals=_proposals(facts, found))


def _proposals(facts: TableFacts, found: Mapping[int, tuple[StateSample, Opinion]]) -> list[Proposal]:
    """Return the chains that a policy proposes, as `agents.regional.proposals.Proposer` finds them."""
    proposals = []
    for state, (_, opinion) in found.items():
        if facts.arrays["state_depth"][state] == 0:
            for number in opinion.likeliest(DEFAULTS.proposed, DEFAULTS.likely):
                proposals.append(_rolled_out(facts, found, state, number))
    return proposals


def _rolled_out(
    facts: TableFacts, found: Mapping[int, tuple[StateSample, Opinion]], state: int, number: int
) -> Proposal:  # fmt: skip
    share = 0.0
    while True:
        sample, opinion = found[state]
        step = sample.first_step + number
        hope = share + (opinion.saving(number, share, HOPE) or 0.0)
        after = facts.arrays["step_next"][step]
        following = found.get(after)
        if following is None or following[1].choice is None:
            return Proposal(step, hope, share)
        share = share + (opinion.saving(number, share) or 0.0)
        state, number = after, following[1].choice


ORDERS: dict[str, Maker] = {
    "constants": by_constants, "means": by_means, "effects": by_effects, "policy": by_policy,
}  # fmt: skip
"""Orders by name; `regional` takes them as `prior`, the policy as `universal`."""


def least_timings(facts: TableFacts, windows: Sequence[int], enough: float) -> float:
    """Return the timings that nobody can undercut who takes steps one by one: the best chains are known, and those that
    save most per step come first."""
    parents = facts.table.parents().tolist()
    chains = []
    for window in windows:
        root = facts.arrays["window_root"][window]
        depth, state = 0, facts.best_state(window)
        while state != root:
            depth, state = depth + 1, parents[state]
        chains.append((facts.best_saved(window), depth))
    total, had, timings = sum(saved for saved, _ in chains), 0.0, 0
    for saved, depth in sorted((one for one in chains if one[1]), key=lambda one: -one[0] / one[1]):
        if had >= enough * total:
            break
        had, timings = had + saved, timings + depth
    return float(timings)
