"""The part of a draft that its finishing takes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Search
from agents.regional.assembly import AssembledGraph
from agents.regional.chains import RewriteChain
from agents.regional.drafting import MeasuredDraft
from agents.regional.finishing import Finishing
from agents.regional.options import RegionalOptions
from graph_rewrite.rewriting.rule import Rule
from tests.agents.regional.exact_timer import chain
from tests.agents.regional.test_joint_rewrites import (
    MS,
    ReluAsThresholdedInOtherLayout,
    ReluInOtherLayout,
    TransposesCancel,
    relus,
    started,
)


class ReluTwice(Rule):
    """Relu(x) = Relu(Relu(x))"""

    family = "toy_twice"

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Relu(op.Relu(x))


def of_two_kinds(folder: Path) -> tuple[Search, Finishing, list[RewriteChain], RegionalOptions]:
    """Return a chain that leaves a Relu and the finishing as much, and one that leaves it less."""
    rules = (ReluInOtherLayout(), TransposesCancel(), ReluTwice(), ReluAsThresholdedInOtherLayout())
    search = started(relus(folder, *rules))
    numbers = sorted(search.problem.model.graph.nodes)
    chains = [chain(0.01, {numbers[i]}, rules=(rules[2 + i].name,)) for i in range(2)]
    return search, Finishing(search, 500), chains, RegionalOptions(most_sites=1)


def test_chains_fit_a_finishing_that_takes_in_as_much_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReluInOtherLayout, "covers_parts", True)
    search, finishing, chains, options = of_two_kinds(tmp_path)
    start = search.best
    assert start is not None
    assert finishing.fitting(start, chains, options) == chains[:1]
    covering = chain(0.01, {min(start.graph.nodes)}, rules=(ReluInOtherLayout.__name__,))
    assert finishing.fitting(start, [*chains, covering], options) == []
    monkeypatch.setattr(ReluInOtherLayout, "covers_parts", False)
    assert finishing.fitting(start, chains, options) == []


@pytest.mark.parametrize("late", [False, True])
def test_the_part_of_a_draft_that_fits_is_measured_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(ReluInOtherLayout, "covers_parts", True)
    monkeypatch.setitem(MS, "LeakyRelu", 1.0)
    search, finishing, chains, options = of_two_kinds(tmp_path)
    start, draft = search.best, MeasuredDraft(chains, False)
    assert start is not None
    finishing.seconds = 40.0 if late else 1.0
    assembly = AssembledGraph(start.graph, (), tuple(chains))
    part = finishing.measured_part(start, assembly, draft, options)
    if late:
        assert part is draft
    else:
        assert [str(one) for one in part.chains] == ["ReluTwice"]
        assert search.best is not None
        assert [node.op for node in search.best.graph.order()] == ["Transpose", *["LeakyRelu"] * 8, "Transpose"]
