"""Forecasts and measurements put together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.latency.estimates import updated

DEVIATIONS = st.floats(0.01, 1.0)


@given(measured=st.floats(-1.0, 1.0), spread=DEVIATIONS, error=DEVIATIONS)
def test_a_forecast_and_a_measurement_give_the_posterior_by_bayes_rule(
    measured: float, spread: float, error: float
) -> None:
    expected = 0.2
    values = np.linspace(-8.0, 8.0, 40_001)
    logs = -0.5 * (((values - expected) / spread) ** 2 + ((values - measured) / error) ** 2)
    density = np.exp(logs - logs.max())
    density /= density.sum()
    mean = float((values * density).sum())
    deviation = math.sqrt(float((density * (values - mean) ** 2).sum()))
    assert updated(expected, spread, measured, error) == pytest.approx((mean, deviation), abs=1e-6)


def test_a_measurement_that_tells_nothing_leaves_the_forecast() -> None:
    assert updated(0.2, 0.1, 5.0, math.inf) == (0.2, 0.1)
