"""A sweep that goes on from what is as fast as its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.regional.gains import Effects
from agents.regional.joint_rewrites import sweep_on
from agents.regional.options import RegionalOptions
from tests.agents.regional.test_joint_rewrites import (
    MS,
    ReluAsThresholdedInOtherLayout,
    ReluInOtherLayout,
    TransposesCancel,
    relus,
    started,
)


class LeakyAsThresholdedInOtherLayout(ReluAsThresholdedInOtherLayout):
    """LeakyRelu(x, alpha=0) = Transpose(ThresholdedRelu(Transpose(x), alpha=0))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.LeakyRelu(x, alpha=op.attr("alpha"))


@pytest.mark.parametrize(
    ("leaky_ms", "thresholded_ms", "cost_s", "found"),
    [(3.75, 1.0, 0.1, True), (3.75, 1.0, 50.0, False), (3.8, 1.0, 0.1, False), (3.75, 7.0, 0.1, False)],
    ids=["tie", "large model", "slower", "leads nowhere"],
)
def test_a_sweep_of_a_small_model_goes_on_from_what_is_as_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    leaky_ms: float, thresholded_ms: float, cost_s: float, found: bool,
) -> None:  # fmt: skip
    """The first rule gains nothing at all sites, the next one then does."""
    monkeypatch.setitem(MS, "LeakyRelu", leaky_ms)
    monkeypatch.setitem(MS, "ThresholdedRelu", thresholded_ms)
    search = started(relus(tmp_path, ReluInOtherLayout(), LeakyAsThresholdedInOtherLayout(), TransposesCancel()))
    search.problem.cost = lambda graph, effort="screen": cost_s  # type: ignore[method-assign]
    start = search.best
    assert start is not None
    assert sweep_on(search, start, Effects(), RegionalOptions(), last=40.0) == found
    assert search.best is not None
    operators = ["ThresholdedRelu"] * 4 if found else ["Relu"] * 4
    assert [node.op for node in search.best.graph.order()] == operators
