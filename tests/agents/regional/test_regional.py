"""The agent `regional`: what it tries in windows, what it puts together, and that limits and budgets hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.core.base import Budget, Search
from agents.core.registry import make_agent
from agents.regional.agent import RegionalAgent
from agents.regional.assembly import build, choose
from agents.regional.gains import Effects
from agents.regional.retiming import AGAIN_S, DOUBTED, MATTERS, finals
from agents.regional.roofline import estimated_seconds
from agents.regional.screen import Form, Screen, time_cut
from agents.regional.sites import Step, apply_all, classes, spots, take
from agents.regional.synthetic_weights import with_stand_ins
from graph_rewrite import Graph, Rewriter
from graph_rewrite.latency.windows import Difference, NotTimed
from graph_rewrite.latency.windows.window import WindowPair, shape_key
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.matmul.embedding import LinearOfEmbedding
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.toys import RULES, chain_problem, costs_of_all, graph_cost

BUDGET = Budget(measurements=200, seconds=60.0)


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that go on from each other are of different families, as they are in the library."""
    for rule in RULES:
        monkeypatch.setattr(type(rule), "family", rule.name, raising=False)


@dataclass
class ExactTimer:
    """A region takes what `graph_cost` says, within `half` seconds."""

    half: float = 0.0
    asked: list[WindowPair] = field(default_factory=list)
    closed: int = 0

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(cut)
        before, after = graph_cost(cut.before) / 1e3, graph_cost(cut.after) / 1e3
        saved = cut.count * (before - after)
        return Difference(saved, (saved - self.half, saved + self.half), cut.count, 1, 1, before)

    def close(self) -> None:
        self.closed += 1


def agent_with(timer: ExactTimer, **options: Any) -> RegionalAgent:
    """Without the climb at the end, which finds what the windows should."""
    return RegionalAgent(**{"climb": False, **options}, cache=False, timer=lambda _: timer)


@pytest.mark.parametrize("granularity", ["site", "class", "both"])
@pytest.mark.parametrize("sites", [1, 3])
def test_finds_the_best_graph_behind_a_valley_of_two_steps(tmp_path: Path, sites: int, granularity: str) -> None:
    problem, timer = chain_problem(tmp_path, sites, granularity), ExactTimer()
    result = agent_with(timer).optimize(problem, BUDGET)
    assert graph_cost(result.graph) == costs_of_all(sites)[0]
    assert timer.closed == 2
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


def test_chains_that_are_too_short_do_not_cross_it(tmp_path: Path) -> None:
    result = agent_with(ExactTimer(), depth=2).optimize(chain_problem(tmp_path, 2), BUDGET)
    assert result.is_original
    assert "nothing was surely faster" in result.message


def test_whole_models_are_measured_for_choices_only(tmp_path: Path) -> None:
    problem, timer = chain_problem(tmp_path, 3), ExactTimer()
    result = agent_with(timer).optimize(problem, BUDGET)
    assert result.measurements == 2
    # Windows end where the margin does: those of the timer are smaller than the model, but for refinements.
    assert min(len(cut.before.nodes) for cut in timer.asked) < len(problem.model.graph.nodes)


@pytest.mark.parametrize("budget", [Budget(1, 60.0), Budget(200, 60.0, applications=2), Budget(200, 0.0)])
def test_budgets_hold(tmp_path: Path, budget: Budget) -> None:
    result = agent_with(ExactTimer()).optimize(chain_problem(tmp_path, 3), budget)
    assert result.measurements <= max(1, budget.measurements)
    assert budget.applications is None or result.applications <= budget.applications


def test_a_timer_that_is_wrong_is_found_out_end_to_end(tmp_path: Path) -> None:
    class Wrong(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            right = ExactTimer.time(self, cut)
            return Difference(-right.seconds, (-right.seconds, -right.seconds), cut.count, 1, 1, right.window_seconds)

    result = agent_with(Wrong(), depth=1).optimize(chain_problem(tmp_path, 2), BUDGET)
    assert result.is_original


def test_climbing_finds_what_windows_do_not_show(tmp_path: Path) -> None:
    class Blind(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            return replace(ExactTimer.time(self, cut), seconds=0.0, ci95=(0.0, 0.0))

    assert agent_with(Blind()).optimize(chain_problem(tmp_path, 2), BUDGET).is_original
    problem = chain_problem(tmp_path, 2)
    result = agent_with(Blind(), climb=True).optimize(problem, BUDGET)
    assert graph_cost(result.graph) == costs_of_all(2)[0]
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


@pytest.mark.parametrize(
    ("options", "message"),
    [({"depth": 0}, "1 or more"), ({"share": 1.0}, "between 0 and 1"), ({"gain": -0.1}, "0 or more")],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegionalAgent(**options)


def test_is_made_by_name() -> None:
    agent: Any = make_agent("regional:depth=2,cache=false")
    assert (agent.name, agent.depth, agent.cache) == ("regional:depth=2,cache=false", 2, False)


def form(saved: float, nodes: set[int], half: float = 0.0, rules: tuple[str, ...] = ("R",), growth: int = 0) -> Form:
    steps = tuple(Step(f"{rule}{sorted(nodes)}", rule, "family") for rule in rules)
    empty: Any = None
    return Form(
        steps, frozenset(nodes), frozenset(nodes), saved, half, growth, 0.0, WindowPair(empty, empty, 1, str(saved))
    )


def test_forms_that_overlap_are_taken_by_what_they_save() -> None:
    forms = [form(1.0, {1, 2}), form(3.0, {2, 3}), form(2.0, {4}), form(2.5, {3, 4})]
    assert [f.saved for f in choose(forms)] == [3.0, 2.0]


def test_what_is_timed_badly_does_not_lead_by_luck(tmp_path: Path) -> None:
    forms = [form(5.0, {1, 2}, half=4.5), form(3.0, {2, 3}, half=0.5)]
    assert [f.saved for f in choose(forms)] == [3.0]
    # Nor does it stand for other chains that begin with the same step.
    chains = [form(9.0, {1}, half=9.5, rules=("A", "B")), form(3.0, {1}, half=0.5, rules=("A",))]
    assert [f.saved for f in finals(Search.__new__(Search), ExactTimer(), chains, lambda: True)] == [3.0]


def test_many_small_forms_may_beat_a_large_one() -> None:
    large, small = form(3.0, {1, 2, 3, 4}), [form(1.5, {1}), form(1.0, {2}), form(1.0, {3})]
    assert choose([large, *small]) == small
    assert choose([large, *small[:2]]) == [large]
    # Those it is no rival of are timed again beside it.
    kept = finals(Search.__new__(Search), ExactTimer(), [large, *small], lambda: True)
    assert sorted(f.saved for f in kept) == [1.0, 1.0, 1.5, 3.0]


def test_a_window_holds_all_that_dies_with_a_rewrite(tmp_path: Path) -> None:
    class SkipsAhead(Rule):
        """Tanh(Relu(Tanh(Relu(x)))) read from far above: what lies between dies with it"""

        family = "toy"

        def source(self, op: Any, x: Any) -> Any:
            return op.Tanh(x, _label="top")

        def target(self, op: Any, m: Any, x: Any) -> Any:
            if x.external is None or m.value("top").external not in m.graph.outputs:
                return Refusal("not the end")
            return op.Tanh(op.Clip(m.ref(m.graph.inputs[0]), op.constant(np.zeros((), np.float32))))

    problem = chain_problem(tmp_path, 4)
    rewriter = Rewriter([SkipsAhead()], deployment=False)
    (spot,) = spots(rewriter, problem.model.graph, 1)
    assert set(spot.window.nodes) == set(problem.model.graph.nodes)
    after = apply_all(Search(problem, BUDGET), spot.window, spot.sites)
    assert after is not None
    assert [node.op for node in after.order()] == ["Clip", "Tanh"]


def test_finals_take_lead_from_luck(tmp_path: Path) -> None:
    class Careful(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            saved = {"5.0": 1.0, "4.0": 2.0, "3.0": -1.0}[cut.key]
            return Difference(saved, (saved - 0.1, saved + 0.1), 1, 1, 1, 10.0)

    search = Search(chain_problem(tmp_path, 1), BUDGET)
    forms = [form(5.0, {1}, rules=("A", "B")), form(4.0, {1}, rules=("C",)), form(3.0, {2})]
    kept = finals(search, Careful(), forms, lambda: False)
    assert [(f.saved, f.steps[0].rule) for f in kept] == [(2.0, "C")]
    # Out of time, the first timing stands.
    assert {f.saved for f in finals(search, Careful(), forms, lambda: True)} == {5.0, 3.0}


def test_what_cannot_be_told_apart_is_timed_again_where_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"5.0": [(1.0, 0.6), (2.4, 0.3), (2.5, 0.1)], "4.0": [(2.0, 0.6), (2.2, 0.3), (2.1, 0.1)]}

    class Noisy(ExactTimer):
        def __init__(self) -> None:
            self.asked: list[tuple[str, float | None, bool]] = []

        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            before = sum(key == cut.key for key, _, _ in self.asked)
            saved, half = answers.get(cut.key, [(-3.0, 0.6)])[before]
            self.asked.append((cut.key, budget_s, anew))
            return Difference(saved, (saved - half, saved + half), 1, 1, 1, 10.0)

    search = Search(chain_problem(tmp_path, 1), BUDGET)
    forms = [form(5.0, {1}, rules=("A",)), form(4.0, {1}, rules=("C",)), form(3.0, {1}, rules=("D",))]
    timer = Noisy()
    (kept,) = finals(search, timer, forms, lambda: False)
    # The first look has C ahead by no more than noise, and D nowhere.
    assert (kept.steps[0].rule, kept.saved, kept.half) == ("A", 2.5, pytest.approx(0.1))
    assert [asked[1:] for asked in timer.asked if asked[0] == "4.0"] == [
        (None, False), *((seconds, True) for seconds in AGAIN_S)
    ]  # fmt: skip
    assert sum(key == "3.0" for key, _, _ in timer.asked) == 1
    monkeypatch.setattr("agents.regional.retiming._seconds", lambda search: 0.7 / MATTERS)
    timer = Noisy()
    assert finals(search, timer, forms, lambda: False)[0].steps[0].rule == "C"
    assert len(timer.asked) == 3


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5 / MATTERS, "A"), (2.0 / MATTERS, "C")])
def test_fewer_steps_lead_only_where_as_much_seems_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, chosen: str
) -> None:
    """Where noise has both intervals overlap, and the longer chain is one second ahead."""
    monkeypatch.setattr("agents.regional.retiming._seconds", lambda search: seconds)
    forms = [form(3.0, {1}, half=1.5, rules=("A", "B")), form(2.0, {1}, half=0.4, rules=("C",))]
    kept = finals(Search(chain_problem(tmp_path, 1), BUDGET), ExactTimer(), forms, lambda: True)
    assert [f.steps[0].rule for f in kept] == [chosen]


def test_what_may_save_nothing_is_timed_longer_before_it_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = {"5.0": (0.8, 0.1), "4.0": (0.05, 0.1)}
    asked: list[str] = []

    class Hasty(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            asked.extend([cut.key] if anew else [])
            saved, half = longer[cut.key] if anew else (float(cut.key) / 4, 2.0)
            return Difference(saved, (saved - half, saved + half), 1, 1, 1, 10.0)

    search = Search(chain_problem(tmp_path, 1), BUDGET)
    monkeypatch.setattr("agents.regional.retiming._seconds", lambda search: 0.6 / DOUBTED)
    forms = [form(5.0, {1}), form(4.0, {2}), form(2.0, {3})]
    assert [(f.saved, f.nodes) for f in finals(search, Hasty(), forms, lambda: False)] == [(0.8, {1})]
    assert asked == ["5.0", "4.0"]  # the third promises too little


def test_hope_fades_and_what_is_known_takes_its_place() -> None:
    effects = Effects()
    keys = [("A", "B"), ("family", "other")]
    assert effects.expected(keys, 0.0, 0.3, 0.5) == pytest.approx(0.3)
    assert effects.expected(keys, -0.4, 0.3, 0.5) == pytest.approx(0.3)
    effects.record(keys[1:], -0.2)
    assert effects.expected(keys, 0.0, 0.3, 0.5) == pytest.approx(-0.05)
    assert effects.expected(keys, -0.4, 0.3, 0.5) == pytest.approx(-0.25)
    for _ in range(20):
        effects.record(keys[:1], 0.4)
    assert effects.expected(keys, 0.1, 0.3, 0.5) == pytest.approx(0.5, abs=1e-5)
    assert effects.expected(keys, -0.1, 0.3, 0.5) == pytest.approx(0.3, abs=1e-5)


def test_a_screen_stops_where_nothing_promises_more(tmp_path: Path) -> None:
    problem, timer = chain_problem(tmp_path, 2), ExactTimer()
    search = Search(problem, BUDGET)
    screen = Screen(search, timer, Effects(), problem.model.graph, 0.0, 3)
    screen._best = dict.fromkeys(problem.model.graph.nodes, 1.0)  # more than anything can still save
    assert screen.run(spots(problem.rewriter, problem.model.graph, 1), lambda: False) == []
    assert timer.asked == []


@pytest.mark.parametrize(
    ("share", "found"), [(0.0, []), (0.1, ["ReluAsThresholded > ThresholdedAsLeaky > LeakyAsClip"])]
)
def test_what_a_family_gained_elsewhere_is_not_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, found: list[str]
) -> None:
    """Where nothing else promises anything, a step is tried whose family never gained, and one behind it pays."""
    for rule in RULES:
        monkeypatch.setattr(type(rule), "family", "toy")
    monkeypatch.setattr("agents.regional.screen.CURIOUS", share)
    problem, effects = chain_problem(tmp_path, 1), Effects()
    for _ in range(20):
        effects.record([("toy", "toy")], 0.0)
    screen = Screen(Search(problem, BUDGET), ExactTimer(), effects, problem.model.graph, 0.007, 3)
    forms = screen.run(spots(problem.rewriter, problem.model.graph, 1), lambda: False)
    assert [str(form) for form in forms] == found


class Longer(Rule):
    """Tanh(Relu(x)) = Tanh(Relu(Relu(x)))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(op.Relu(x)))


class Shorter(Rule):
    """Tanh(Relu(x)) = Tanh(x), which nobody proves here"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(x)


@pytest.mark.parametrize("rules", [(Longer(), Shorter()), (Shorter(), Longer())])
def test_a_screen_begins_with_what_saves_operations(tmp_path: Path, rules: tuple[Rule, Rule]) -> None:
    problem, timer = chain_problem(tmp_path, 3), ExactTimer()
    problem.rewriter = Rewriter(rules, deployment=False)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), problem.model.graph, 1.0, 1)
    found = [spot for spot in spots(problem.rewriter, problem.model.graph, 1) if len(spot.sites) == 3]
    assert {spot.sites[0].rule for spot in found} == set(rules)
    screen.run(found, lambda: False)
    grown = [len(cut.after.nodes) - len(cut.before.nodes) for cut in timer.asked]
    assert grown[0] == -1


def test_a_window_holds_what_lies_between_what_a_rewrite_reads_and_its_match() -> None:
    """The rule asks what the normalisation is of, and reads the tokens four nodes above it."""
    text = """(int64[1,3] i, float[1,3,4] h) => (z, o) {
        a0 = Gather(t, i)  a1 = Add(a0, c)  a2 = Add(a1, c)  a3 = Add(a2, c)
        n = LayerNormalization(a3, g)  m = MatMul(n, w)  y = Add(m, b)  z = Relu(y)  o = Neg(h)
    }"""
    rng = np.random.default_rng(0)
    shapes = {"t": (5, 4), "c": (3, 4), "g": (4,), "w": (4, 2), "b": (2,)}
    graph = model(text, **{name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})
    rewriter = Rewriter([LinearOfEmbedding()], "site", deployment=False)
    (spot,) = spots(rewriter, graph, 1)
    assert sorted(node.op for node in spot.window.nodes.values()) == sorted(
        ["Gather", "Add", "Add", "Add", "LayerNormalization", "MatMul", "Add", "Relu"]
    )
    assert len(rewriter.candidates(spot.window)) == 1


def test_a_lookup_takes_what_it_gives_not_its_table() -> None:
    text = "(int64[1,3] i) => (y) { y = Gather(t, i) }"
    few, many = (model(text, t=np.zeros((rows, 4), np.float32)) for rows in (5, 50_000))
    assert estimated_seconds(few, few.nodes) == estimated_seconds(many, many.nodes) > 0.0


@pytest.mark.parametrize(
    ("layers", "usual", "around"),
    [(2, 0, ["Relu", "Tanh"]), (5, 1, ["Tanh", "Relu", "Tanh"]), (30, 3, ["Tanh", "Relu", "Tanh"])],
)
def test_a_window_is_that_of_most_sites(tmp_path: Path, layers: int, usual: int, around: list[str]) -> None:
    """The first of several layers has none before it, and leads where each is different. Of 30 each third is seen."""
    problem = chain_problem(tmp_path, layers)
    graph = problem.model.graph
    (spot,) = spots(problem.rewriter, graph, 1)
    in_order = next(iter(classes(problem.rewriter, graph).values()))
    assert spot.sites[0] is in_order[usual]
    assert {site.anchor for site in spot.sites} == {site.anchor for site in in_order}
    assert len(spot.sites) == layers
    assert [node.op for node in spot.window.order()] == around


def test_a_step_reaches_every_site_of_its_class(tmp_path: Path) -> None:
    for granularity in ("site", "class", "both"):
        folder = tmp_path / granularity
        folder.mkdir()
        problem = chain_problem(folder, 3, granularity)
        site = next(iter(classes(problem.rewriter, problem.model.graph).values()))[0]
        search, near = Search(problem, BUDGET), frozenset(problem.model.graph.nodes)
        taken = take(search, problem.model.graph, Step(site.class_key, site.rule.name, ""), near)
        assert taken is not None
        graph, actions, inserted = taken
        assert sum(action.count for action in actions) == 3
        assert inserted == {node.id for node in graph.nodes.values() if node.op == "ThresholdedRelu"}
        assert take(search, graph, Step(site.class_key, site.rule.name, ""), near) is None


def test_a_step_stays_near_where_it_belongs(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3)
    search, graph = Search(problem, BUDGET), problem.model.graph
    site = next(iter(classes(problem.rewriter, graph).values()))[1]
    # Another class key, as where a neighbour was rewritten before: the rule and the place decide.
    taken = take(search, graph, Step("another", site.rule.name, ""), frozenset({site.anchor}))
    assert taken is not None
    assert [node.op for node in taken[0].order()] == ["Relu", "Tanh", "ThresholdedRelu", "Tanh", "Relu", "Tanh"]


def test_forms_without_a_site_are_left_out(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    built = build(Search(problem, BUDGET), problem.model.graph, (), [form(1.0, {1})])
    assert built.graph is problem.model.graph
    assert built.forms == built.actions == ()


def test_what_cannot_be_timed_is_none(tmp_path: Path) -> None:
    class Failing(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            raise NotTimed("a region cannot be timed by itself: no reason")

    problem = chain_problem(tmp_path, 1)
    search = Search(problem, BUDGET)
    assert time_cut(search, Failing(), WindowPair(problem.model.graph, problem.model.graph, 1, "")) is None
    assert agent_with(Failing()).optimize(problem, BUDGET).is_original


def test_known_timings_are_charged(tmp_path: Path) -> None:
    class Remembering(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            return Difference(1.0, (1.0, 1.0), 1, 1, 1, 2.0, cost_s=7.0)

    problem = chain_problem(tmp_path, 1)
    search = Search(problem, BUDGET)
    time_cut(search, Remembering(), WindowPair(problem.model.graph, problem.model.graph, 1, ""))
    assert 7.0 <= search.seconds < 8.0


def test_estimates_grow_with_arithmetic() -> None:
    w = np.ones((16, 16, 3, 3), np.float32)
    body = "y = Conv<pads=[1,1,1,1]>(x, w)"
    small, large = (model(f"(float[1,16,{n},{n}] x) => (y) {{ {body} }}", w=w) for n in (8, 16))
    assert estimated_seconds(large, large.nodes) > 3.0 * estimated_seconds(small, small.nodes)
    product = model("(float[4,8] x) => (y) { y = MatMul(x, w) }", w=np.ones((8, 2), np.float32))
    flops, traffic = 2 * 4 * 8 * 2, 4 * (4 * 8 + 8 * 2 + 4 * 2)
    assert estimated_seconds(product, product.nodes) == pytest.approx(flops / 6e10 + traffic / 8e9)


def test_growth_beyond_the_limit_is_left_out(tmp_path: Path) -> None:
    from agents.regional.assembly import within_limits

    @dataclass(frozen=True)
    class Never(ResultLimits):
        def violation(self, original: Graph, graph: Graph) -> str:
            return "" if graph.hash == original.hash else "too large"

    problem: Problem = chain_problem(tmp_path, 2, "class")
    problem.limits = Never()
    search = Search(problem, BUDGET)
    site = next(iter(classes(problem.rewriter, problem.model.graph).values()))[0]
    step = Step(site.class_key, site.rule.name, "")
    empty: Any = None
    growing = Form(
        (step,), frozenset({site.anchor}), frozenset({1}), 1.0, 0.0, 100, 0.0, WindowPair(empty, empty, 1, "")
    )
    assert within_limits(search, problem.model.graph, (), [growing]).forms == ()


class TestStandIns:
    """Windows are timed with random weights in place of large ones."""

    def window(self) -> Graph:
        from graph_rewrite.rules import find_rule

        rng = np.random.default_rng(0)
        weights = {"w": rng.standard_normal((48, 48, 3, 3)), "v": rng.standard_normal((48, 48, 3, 3))}
        body = "a = Conv<pads=[1,1,1,1]>(x, w, b)  c = Conv<pads=[1,1,1,1]>(a, v)  y = Conv<pads=[1,1,1,1]>(c, w)"
        graph = model(f"(float[1,48,8,8] x) => (y) {{ {body} }}", b=rng.standard_normal(48), **weights)
        rewriter = Rewriter([find_rule("WinogradRows2")], granularity="site", deployment=False)
        return rewriter.candidates(graph)[0].apply()

    def test_nothing_is_folded_for_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import graph_rewrite.operators.folding as fold

        graph = self.window()
        assert any(c.expression is not None and c.type.size > 4096 for c in graph.constants.values())
        monkeypatch.setattr(fold, "run_operator", lambda *args: pytest.fail("a weight was computed"))
        for value, constant in with_stand_ins(graph).constants.items():
            assert constant.type == graph.constants[value].type
            if constant.type.size > 4096:
                assert constant.numpy().shape == constant.type.shape
                assert np.isfinite(constant.numpy()).all()
                assert constant.numpy().std() > 0.0

    def test_structure_and_small_constants_stay(self) -> None:
        graph = self.window()
        other = with_stand_ins(graph)
        assert other.nodes is graph.nodes
        assert shape_key(other) == shape_key(graph)
        assert other.hash != graph.hash
        small = [value for value, constant in graph.constants.items() if constant.type.size <= 4096]
        assert small
        assert all(other.constants[value] is graph.constants[value] for value in small)
        # What is one weight at two places stays one, and different ones stay different.
        assert len({c.digest for c in other.constants.values()}) == len({c.digest for c in graph.constants.values()})

    def test_alike_windows_become_equal(self) -> None:
        assert with_stand_ins(self.window()).hash == with_stand_ins(self.window()).hash

    def test_they_run(self, tmp_path: Path) -> None:
        import onnxruntime as ort

        from graph_rewrite.onnx_files.saving import materialize

        path = materialize(with_stand_ins(self.window()), tmp_path)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: np.ones((1, 48, 8, 8), np.float32)})
        assert np.isfinite(found).all()
        assert 1e-3 < np.abs(found).max() < 1e3
