"""Forecasts of means as features: learnt from other architectures than the one they are told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agents.effects.forecasts import TableForecasts
from agents.effects.learning_means import chains_of, learnt_means
from agents.effects.plain import FORECAST, WIDTH, forecast_features, plain_steps
from agents.effects.samples import StateSample, samples_of
from agents.effects.step_means import Forecast
from agents.effects.training import EffectTraining, train
from envs.window import WindowTable


@pytest.fixture(scope="module")
def some(table: WindowTable) -> list[StateSample]:
    """States of three architectures."""
    found: list[StateSample] = []
    for family in ("resnet", "vgg", "mixer"):
        windows = [number for number, window in enumerate(table.windows) if window.family == family][:12]
        found += samples_of(table, windows)
    return found


def families_of(table: WindowTable, samples: Sequence[StateSample]) -> list[str]:
    return [table.windows[sample.window].family for sample in samples]


def told(sample: StateSample) -> np.ndarray:
    assert sample.forecasts is not None
    return sample.forecasts


def test_a_state_is_told_what_the_means_of_the_others_say(table: WindowTable, some: list[StateSample]) -> None:
    families = families_of(table, some)
    forecasts = TableForecasts(table)
    chains, arrays = chains_of(table), table.arrays
    seen = set[bool]()
    for sample, family in zip(forecasts.for_training(some), families, strict=True):
        others = {one.window for one, its in zip(some, families, strict=True) if its != family}
        if sample.first_step % 5:
            continue
        means = learnt_means(table, others)
        for number, row in enumerate(told(sample)):
            step = sample.first_step + number
            rules, names, shapes = chains[int(arrays["step_next"][step])]
            guess = float(np.clip(arrays["step_guess"][step], -0.5, 0.5))
            forecast = means.forecast(rules, names, table.classes[shapes], guess)
            seen.add(forecast is None)
            assert row == pytest.approx(forecast_features(forecast, means.on_line(guess)), abs=1e-6)
    assert seen == {True, False}


def test_what_was_measured_in_its_own_architecture_is_not_told(table: WindowTable, some: list[StateSample]) -> None:
    """Otherwise a model would learn to trust forecasts that know the answer."""
    arrays = {name: array.copy() for name, array in table.arrays.items()}
    own = [one for one, family in zip(some, families_of(table, some), strict=True) if family == "resnet"]
    for sample in own:
        arrays["step_share"][sample.first_step : sample.first_step + len(sample.effects)] = 0.9
    changed = TableForecasts(replace(table, arrays=arrays)).for_training(some)
    same = [
        np.array_equal(told(one), told(other))
        for one, other in zip(TableForecasts(table).for_training(some), changed, strict=True)
    ]
    is_own = [family == "resnet" for family in families_of(table, some)]
    assert all(equal for equal, mine in zip(same, is_own, strict=True) if mine)
    assert not all(equal for equal, mine in zip(same, is_own, strict=True) if not mine)


def test_unknown_states_are_told_by_the_known_ones(table: WindowTable, some: list[StateSample]) -> None:
    families = families_of(table, some)
    known = [one for one, family in zip(some, families, strict=True) if family != "mixer"]
    unknown = [one for one, family in zip(some, families, strict=True) if family == "mixer"]
    forecasts = TableForecasts(table)
    expected = [one for one, its in zip(forecasts.for_training(some), families, strict=True) if its == "mixer"]
    found = forecasts.learnt_from(known, unknown)
    assert len(found) == len(unknown) > 0
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(told(one), told(other))


def test_forecasts_are_the_last_plain_features(some: list[StateSample]) -> None:
    sample = some[0]
    rows = np.arange(len(sample.effects) * FORECAST, dtype=np.float32).reshape(-1, FORECAST)
    without = plain_steps(sample.observation, sample.share, sample.depth)
    found = replace(sample, forecasts=rows).plain
    assert found.numbers.shape[1] == WIDTH
    assert np.array_equal(found.numbers[:, -FORECAST:], rows)
    assert np.array_equal(found.numbers[:, :-FORECAST], without.numbers[:, :-FORECAST])
    assert without.numbers[0, -FORECAST:] == pytest.approx(forecast_features(None, 0.0))


def test_a_forecast_that_tells_the_truth_is_learnt(some: list[StateSample]) -> None:
    random = np.random.default_rng(0)
    blind, informed = [], []
    for sample in some:
        effects = random.normal(0.0, 0.3, len(sample.effects))
        rows = [forecast_features(Forecast(float(one), 0.1, 5.0), 0.0) for one in effects]
        blind.append(replace(sample, effects=effects, errors=np.full(len(effects), 0.01)))
        informed.append(replace(blind[-1], forecasts=np.array(rows, dtype=np.float32)))
    half, settings = len(some) // 2, EffectTraining(epochs=30, learning_rate=5e-3)
    truth = np.concatenate([sample.effects for sample in blind[half:]])
    correlations = []
    for samples in (informed, blind):
        means, _ = train(samples[:half], settings).predict(samples[half:])
        correlations.append(np.corrcoef(means, truth)[0, 1])
    assert correlations[0] > 0.5
    assert abs(correlations[1]) < 0.2
