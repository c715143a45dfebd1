"""ResultLimits of results: graphs beyond them are never timed, and never chosen."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from agents.commands.common import ModelArguments
from agents.conclusion.conclude import conclude
from agents.core.base import Budget, Search, action_of
from envs import open_problem
from graph_rewrite import Graph, Rewriter, load
from graph_rewrite.ir.constants import from_array
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.latency import Deployment
from graph_rewrite.task.limits import ERROR_BUDGET, FREE_BYTES, ResultLimits
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import OperatorCountMeter, count_operators
from tests.graph_rewrite.sample_models import parsed, weights

SIZE = 512


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """y = Gelu(x W - (-x)) with a weight of 1 MiB."""
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))
    steps = "t = MatMul(x, w) u = Neg(x) v = Neg(u) s = Add(t, v) y = Gelu(s)"
    body = f"(float[4,{SIZE}] x) => (float[4,{SIZE}] y) {{ {steps} }}"
    onnx.save(parsed(body, weights("w", SIZE, SIZE)), tmp_path / "model.onnx")
    return open_problem(f"file:{tmp_path / 'model.onnx'}", provider="cpu", meter=count_operators)


def with_weights(graph: Graph, factor: float) -> Graph:
    """The graph with an additional addition of zeros that take `factor` times the bytes of its weight."""
    editor = GraphEditor(graph)
    (value,) = graph.outputs
    zeros = from_array(np.zeros((int(SIZE * factor) // 4, 4, SIZE), np.float32))
    constant = editor.new_value(zeros.type, zeros)
    total, out = editor.new_value(zeros.type), editor.new_value(graph.types[value])
    rank = max(graph.ranks.values())
    axes = from_array(np.array([0], np.int64))
    editor.insert("Add", "", {}, [value, constant], [total], rank + 1)
    editor.insert("ReduceMean", "", {"keepdims": 0}, [total, editor.new_value(axes.type, axes)], [out], rank + 2)
    editor.outputs = (out,)
    return editor.finish()[0]


class TestSize:
    def test_growth_within_the_limit_passes_and_beyond_it_does_not(self, problem: Problem) -> None:
        original = problem.model.original
        limits = ResultLimits(size_growth=4.0)
        assert limits.violation(original, original) == ""
        assert limits.violation(original, with_weights(original, 2.9)) == ""
        assert "--max-size-growth" in limits.violation(original, with_weights(original, 3.2))

    def test_small_models_may_grow_by_a_megabyte(self, problem: Problem) -> None:
        original = problem.model.original
        limits = ResultLimits(size_growth=1.0)
        assert FREE_BYTES == SIZE * SIZE * 4
        assert limits.violation(original, with_weights(original, 0.9)) == ""
        assert limits.violation(original, with_weights(original, 1.1))

    def test_a_graph_beyond_the_limit_is_not_timed(self, problem: Problem) -> None:
        assert isinstance(problem.meter, OperatorCountMeter)
        before = problem.meter.measurements
        latency = problem.measure(with_weights(problem.model.graph, 8.0))
        assert latency.status == "error"
        assert "grow" in latency.message
        assert problem.meter.measurements == before

    @pytest.mark.parametrize("growth", [0.5, float("nan"), float("inf")])
    def test_senseless_limits_are_refused(self, growth: float) -> None:
        with pytest.raises(ValueError, match="size growth"):
            ResultLimits(size_growth=growth)


class TestStandardOperators:
    def test_rewriter_offers_no_foreign_operators(self, problem: Problem) -> None:
        graph = problem.model.graph
        domains = ResultLimits(standard_ops_only=True).allowed_domains(graph)
        free = Rewriter(granularity="site").sites(graph)
        assert any(node.domain for site in free for node in site.replacement.nodes)
        kept = Rewriter(granularity="site", domains=domains).sites(graph)
        assert kept
        assert not any(node.domain for site in kept for node in site.replacement.nodes)
        assert {site.key for site in kept} == {s.key for s in free if not any(n.domain for n in s.replacement.nodes)}

    def test_the_blocked_layout_is_offered_on_the_cpu_alone(self, problem: Problem) -> None:
        graph = problem.model.graph
        assert ResultLimits().allowed_domains(graph) is None
        elsewhere = ResultLimits().allowed_domains(graph, "cuda")
        assert elsewhere is not None
        assert "com.microsoft" in elsewhere
        assert "com.microsoft.nchwc" not in elsewhere
        assert "com.microsoft.nchwc" not in (ResultLimits(standard_ops_only=True).allowed_domains(graph) or ())

    def test_a_result_with_foreign_operators_is_never_timed(self, problem: Problem) -> None:
        graph = problem.model.graph
        foreign = next(
            c for c in Rewriter().candidates(graph) for s in c.sites if any(n.domain for n in s.replacement.nodes)
        )
        strict = ResultLimits(standard_ops_only=True)
        assert "com.microsoft" in strict.violation(problem.model.original, foreign.apply())
        assert strict.violation(foreign.apply(), foreign.apply()) == ""
        assert ResultLimits().violation(problem.model.original, foreign.apply()) == ""


class TestErrorBudget:
    def test_a_result_beyond_the_budget_is_not_kept(self, problem: Problem) -> None:
        search = Search(problem, Budget(10, 60.0))
        candidate = next(
            c for c in problem.rewriter.candidates(problem.model.graph)
            if [node.op for site in c.sites for node in site.removed] == ["Neg", "Neg"]
        )  # fmt: skip
        after = candidate.apply()
        (weight,) = (v for v, c in after.constants.items() if c.type.size == SIZE * SIZE)
        perturbed = from_array(after.constants[weight].numpy() * np.float32(1 + 1e-3))
        editor = GraphEditor(after)
        new = editor.new_value(perturbed.type, perturbed)
        editor.replace_value(weight, new)
        wrong = editor.finish()[0]
        search.measure(problem.model.graph, ())
        search.measure(wrong, (action_of(candidate),))
        kept = conclude(search, "test")
        assert kept.is_original
        assert "differs by" in kept.message
        problem.limits = ResultLimits(error_budget=1e-2)
        found = conclude(search, "test")
        assert found.graph.hash == wrong.hash
        assert 1e-4 < found.max_rel_error < 1e-2
        problem.limits = ResultLimits(error_budget=1e-2, rtol=1e-6)
        kept = conclude(search, "test")
        assert kept.is_original
        assert "beyond the tolerances rtol=1e-06 and atol=0" in kept.message

    def test_default_is_the_budget_or_what_rounding_explains(self, problem: Problem, tmp_path: Path) -> None:
        cpu = Deployment("cpu")
        assert 0.0 < ResultLimits().tolerance(problem.model.original, cpu) <= ERROR_BUDGET
        assert ResultLimits(error_budget=1e-6).tolerance(problem.model.original, cpu) == 1e-6
        onnx.save(parsed("(float16[2] x) => (float16[2] y) { y = Neg(x) }"), tmp_path / "half.onnx")
        assert ResultLimits().tolerance(load(tmp_path / "half.onnx"), cpu) > ERROR_BUDGET

    @pytest.mark.parametrize("budget", [0.0, -1.0, 1.0, float("nan")])
    def test_senseless_budgets_are_refused(self, budget: float) -> None:
        with pytest.raises(ValueError, match="error budget"):
            ResultLimits(error_budget=budget)

    @pytest.mark.parametrize("limits", [{"rtol": -1.0}, {"atol": float("inf")}])
    def test_senseless_tolerances_are_refused(self, limits: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="must be a number of 0 or more"):
            ResultLimits(**limits)  # type: ignore[arg-type]


def test_flags_reach_the_problem(problem: Problem) -> None:
    arguments = ModelArguments(
        model=problem.model.uri, provider="cpu", max_size_growth=2.0, error_budget=1e-3, standard_ops_only=True
    )
    opened = arguments.open(arguments.load(), cached=False)
    assert opened.limits == ResultLimits(2.0, 1e-3, True)
    assert opened.rewriter.domains == {"", "ai.onnx"}
