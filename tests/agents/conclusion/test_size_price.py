"""Weights have a price: what adds them must save enough, in the choice of the winner and of single rewrites."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.conclusion.conclude import conclude
from agents.conclusion.fresh_process import FreshProcess
from agents.conclusion.size_tradeoff import TOO_LARGE, tradeoff
from agents.core.base import Action, Budget, Search
from agents.optimization.options import OptimizeOptions
from agents.regional.assembly import choose
from agents.regional.chains import RewriteChain
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.task import limits
from graph_rewrite.task.limits import FREE_BYTES, ResultLimits, priced
from graph_rewrite.task.problem import Problem
from tests.agents.toys import chain_problem
from tests.envs.fakes import write_tower

MB = 1 << 20


@pytest.mark.parametrize(
    ("saved", "growth", "pays"),
    [(0.47, 1.24, True), (0.10, 0.50, True), (0.04, 2.70, False), (0.10, 1.01, False), (0.001, 0.0, True)],
)
def test_winograd_and_strassen_pay_and_tables_do_not(saved: float, growth: float, pays: bool) -> None:
    price = ResultLimits(size_price=0.1).price_of(100 * MB, round(growth * 100 * MB))
    assert (priced(1.0 / (1.0 - saved), price) > 1.0) is pays


def test_without_a_price_or_growth_that_anybody_notices_nothing_is_asked() -> None:
    assert ResultLimits().price_of(100 * MB, 300 * MB) == 0.0
    asking = ResultLimits(size_price=0.1)
    assert asking.price_of(100 * MB, -MB) == 0.0
    assert asking.price_of(FREE_BYTES // 4, FREE_BYTES) == 0.0
    assert asking.price_of(100 * MB, 50 * MB) == pytest.approx(0.05)
    assert priced(1.3, 0.0) == 1.3
    assert priced(0.0, 0.2) == 0.0
    assert OptimizeOptions().limits.size_price == 0.1
    assert ResultLimits().size_price == 0.0


@pytest.mark.parametrize("price", [-0.1, float("nan"), float("inf")])
def test_a_price_is_a_number(price: float) -> None:
    with pytest.raises(UserError, match="price of size"):
        ResultLimits(size_price=price)


def test_a_graph_is_charged_for_what_it_has_beyond_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = (load(write_tower(tmp_path / f"{n}.onnx", n, 64)) for n in (2, 3))
    asking = ResultLimits(size_price=0.1)
    assert asking.price(small, large) == 0.0  # some kilobytes
    monkeypatch.setattr(limits, "FREE_BYTES", 0)
    assert asking.price(small, large) == pytest.approx(0.05, rel=1e-3)
    assert asking.price(large, small) == 0.0


class TestWinner:
    @pytest.fixture
    def measured(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Search]:
        def make(*found: tuple[float, float]) -> Search:
            """A search that measured graphs with these (speed-up, price)."""
            problem = chain_problem(tmp_path, sites=4)
            graphs = [candidate.apply() for candidate in problem.rewriter.candidates(problem.model.graph)]
            prices = dict(zip((graph.hash for graph in graphs), (price for _, price in found), strict=False))
            monkeypatch.setattr(ResultLimits, "price", lambda self, original, graph: prices.get(graph.hash, 0.0))
            search = Search(problem, Budget())
            for graph, (speedup, _) in zip(graphs, found, strict=False):
                self.record(search, graph, speedup)
            return search

        return make

    @staticmethod
    def record(search: Search, graph: Graph, speedup: float) -> None:
        latency = Latency(10.0 / speedup, speedup, (speedup - 0.005, speedup + 0.005), 10, 10.0)
        search.problem._memo |= {(graph.hash, "screen"): latency, (graph.hash, "full"): latency}
        search.measure(graph, (Action("key", "R", "R", 1),))

    @staticmethod
    def speedup(problem: Problem, search: Search) -> float:
        return round(conclude(search, "test").latency.speedup, 2)

    def test_the_fastest_wins_where_its_weights_pay(self, measured: Callable[..., Search]) -> None:
        search = measured((1.2, 0.0), (1.9, 0.12))
        assert self.speedup(search.problem, search) == 1.9

    def test_a_smaller_one_wins_where_the_rest_of_the_gain_does_not_pay(self, measured: Callable[..., Search]) -> None:
        search = measured((1.20, 0.0), (1.25, 0.27))
        assert self.speedup(search.problem, search) == 1.2

    def test_where_no_weights_pay_the_original_is_kept_with_the_reason(self, measured: Callable[..., Search]) -> None:
        search = measured((1.04, 0.27), (1.03, 0.2))
        result = conclude(search, "test")
        assert result.is_original
        assert result.message == f"the original is kept: {TOO_LARGE}"

    def test_the_best_that_adds_no_weights_follows_where_the_others_turn_out_too_dear(
        self, measured: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search = measured((1.30, 0.1), (1.31, 0.1), (1.32, 0.1), (1.04, 0.0))

        def less(search: Search, graph: Graph, known: Latency, fresh: FreshProcess) -> Latency:
            found = search.problem.measure(graph, "full").speedup
            speedup = found if found < 1.1 else 1.1
            return Latency(10.0 / speedup, speedup, (speedup - 0.005, speedup + 0.005), 10, 10.0)

        monkeypatch.setattr("agents.conclusion.conclude.confirmed", less)
        assert self.speedup(search.problem, search) == 1.04

    def test_in_turn_the_price_counts_as_well(self, measured: Callable[..., Search]) -> None:
        search = measured((1.20, 0.0), (1.25, 0.02), (1.25, 0.05))
        small, cheap, dear = search.visits.values()
        assert search.is_worth_more(cheap, small, 1.25 / 1.20)
        assert not search.is_worth_more(dear, small, 1.25 / 1.20)
        assert search.is_worth_more(small, dear, 1.20 / 1.25)
        assert search.best is cheap
        assert search.beats(cheap, small)
        assert not search.beats(dear, small)

    def test_the_trade_off_shows_what_each_size_would_give(
        self, measured: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search = measured((1.1, 0.0), (1.3, 0.0), (1.6, 0.0), (1.05, 0.0))
        weights = dict(zip(search.visits, (100, 120, 190, 90), strict=True))
        monkeypatch.setattr("agents.conclusion.size_tradeoff.weight_bytes", lambda graph: weights.get(graph.hash, 100))
        found = tradeoff(search)
        assert [(point.size, point.speedup, point.weights) for point in found] == [
            (1.0, 1.1, 100), (1.25, 1.3, 120), (2.0, 1.6, 190), (5.0, 1.6, 190)
        ]  # fmt: skip
        assert conclude(search, "test").tradeoff == found

    def test_the_trade_off_of_a_search_that_found_nothing_is_the_original(
        self, measured: Callable[..., Search]
    ) -> None:
        assert {(point.speedup, point.ci95) for point in tradeoff(measured((0.9, 0.0)))} == {(1.0, (1.0, 1.0))}


def test_single_rewrites_are_chosen_by_what_they_save_beyond_their_price() -> None:
    def chain(saved: float, price: float, *nodes: int) -> RewriteChain:
        return RewriteChain((), frozenset(), frozenset(nodes), saved, 0.1, 8, 0.0, None, price)  # type: ignore[arg-type]

    dear, cheap, lossy = chain(5.0, 3.0, 1), chain(4.0, 0.5, 1), chain(2.0, 2.0, 2)
    assert choose([dear, cheap]) == [cheap]
    assert (dear.net, round(cheap.lower_bound, 3), lossy.is_certain) == (2.0, 3.4, False)
