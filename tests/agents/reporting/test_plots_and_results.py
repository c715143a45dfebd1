"""Contents of a result, the files it is written to, and its plots."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from agents.core.base import Budget, Search
from agents.core.registry import make_agent
from agents.egraph.tensat import TensatAgent
from agents.reporting.plots import (
    best_so_far,
    by_agent,
    draw_growth,
    draw_learning_curve,
    rule_use,
    save_learning_curve,
    save_plots,
)
from agents.reporting.progress import deployment_table, results_table, rewrites_table, rules_table, search_display
from agents.reporting.runs import file_name, result_entry
from agents.searching.cost_model import OperatorPrices
from graph_rewrite.egraph import from_graph
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.replay import replay
from tests.agents.toys import WEIGHTS, chain_problem, costs_of_all, graph_cost

PLOTS = {"speedups.png", "rules.png", "latency.png", "optimization-time.png"}


def entry(agent: str, speedup: float, rules: dict[str, int], **more: Any) -> dict[str, Any]:
    improvements = [
        {"seconds": 1.0, "measurements": 1, "applications": 0, "speedup": 0.9, "latency_ms": 11.1},
        {"seconds": 2.0, "measurements": 3, "applications": 4, "speedup": 1.25, "latency_ms": 8.2},
        {"seconds": 5.0, "measurements": 9, "applications": 11, "speedup": speedup, "latency_ms": 10.0 / speedup},
    ]
    return {
        "agent": agent, "speedup": speedup, "speedup_ci95": [speedup - 0.02, speedup + 0.03],
        "latency_ms": 10.0 / speedup, "seconds": 8.0, "measurements": 12, "rule_histogram": rules,
        "improvements": improvements, **more,
    }  # fmt: skip


def summary(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"model": "zoo://bert-tiny?seq_len=64", "provider": "cpu", "results": list(entries)}


def test_plots_are_images_that_show_something(tmp_path: Path) -> None:
    runs = summary(
        entry("greedy:beam=3,lookahead=2", 1.5, {"A": 24, "B": 1}), entry("taso", 1.3, {"A": 2}),
        entry("taso", 1.4, {"C": 7}),
    )  # fmt: skip
    written = save_plots(runs, tmp_path)
    assert {path.name for path in written} == PLOTS
    assert {path.name for path in tmp_path.iterdir()} == PLOTS
    for path in written:
        pixels = imread(path)
        assert pixels.shape[0] > 100
        assert pixels[..., :3].std() > 0.01
    first = (tmp_path / "speedups.png").read_bytes()
    save_plots(summary(entry("taso", 2.5, {})), tmp_path)
    assert (tmp_path / "speedups.png").read_bytes() != first


def test_a_learning_curve_shows_speedups_where_there_are_any(tmp_path: Path) -> None:
    on_a_model = {"curve": [[10, -1.0, 1.0], [20, 2.0, 1.1]]}
    on_windows = {"curve": [[64, 0.01, 1.0]]}
    labels = {
        name: [axes.get_ylabel().partition(",")[0] for axes in draw_learning_curve(training).axes]
        for name, training in (("model", on_a_model), ("windows", on_windows))
    }
    assert labels == {"model": ["episode reward", "best speed-up so far"], "windows": ["episode reward"]}
    assert save_learning_curve(on_a_model, tmp_path) == tmp_path / "learning-curve.png"
    assert [path.name for path in tmp_path.iterdir()] == ["learning-curve.png"]
    assert save_learning_curve({"curve": []}, tmp_path) is None


def test_tables_keep_every_number_whole_in_80_columns() -> None:
    memory = {"before": {"weights": 435.9e6, "peak": 439.5e6}, "after": {"weights": 1434.8e6, "peak": 1438.3e6}}
    deployment = {"disabled_optimizers": ["BiasGeluFusion", "MatMulAddFusion", "SkipLayerNormFusion"]}
    rewrite = {"rule": "FeedForwardToPointwiseConvs", "sites": 12, "description": "MatMul Add Gelu " * 12}
    results = [
        entry(
            name, 1.234, {"A": 24}, max_rel_error=1.5e-6, memory=memory, deployment=deployment, applications=113656,
            rules_applied=17, cost_model_speedup=1.014, rewrites=[rewrite] * 12,
        )
        for name in ("egraph-mcts", "greedy:beam=3,lookahead=2,round_share=0.25")
    ]  # fmt: skip
    shown = io.StringIO()
    console = Console(width=80, file=shown)
    for table in (results_table("zoo://bert", results), deployment_table(results), rules_table(results)):
        console.print(table)
    console.print(rewrites_table(results[0]))
    text = shown.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for whole in ("x1.234", "1.214 to 1.264", "8.10", "1.5e-06", "1434.8 (was 435.9)", "113656", "MatMulAddFusion"):
        assert whole in text


def test_the_table_of_deployments_names_session_settings() -> None:
    deployment = Deployment(threads=2).with_disabled(["BiasGeluFusion"]).with_settings({"allow_spinning": False})
    shown = io.StringIO()
    Console(width=120, file=shown).print(deployment_table([entry("greedy", 1.2, {}, deployment=deployment.to_json())]))
    assert "BiasGeluFusion; allow_spinning=false " in shown.getvalue()


def test_a_search_that_writes_into_a_file_tells_how_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.reporting.progress.EVERY", 10.0)
    problem = chain_problem(tmp_path)
    search = Search(problem, Budget(5, 100.0))
    search.measure(problem.model.graph, ())
    shown = io.StringIO()
    with search_display(Console(width=40, file=shown), "regional") as update:
        for seconds in (4.0, 12.0, 13.0, 15.0, 31.0):
            search.charge(seconds, seconds, search.seconds)
            update(search)
    lines = shown.getvalue().splitlines()
    assert [line.split(", ")[2] for line in lines] == ["12/100 s", "31/100 s"]
    assert lines[0].startswith("regional: 1/5 measurements, 0 rewrites, ")


def test_without_rules_or_results_there_is_nothing_to_draw(tmp_path: Path) -> None:
    assert save_plots(summary(), tmp_path) == []
    names = {path.name for path in save_plots(summary(entry("random", 1.0, {})), tmp_path)}
    assert names == PLOTS - {"rules.png"}


def test_rule_use_is_the_mean_over_runs_most_used_first() -> None:
    groups = by_agent([entry("a", 1.1, {"X": 4}), entry("b", 1.1, {"Y": 9, "X": 1}), entry("a", 1.2, {"X": 2, "Z": 1})])
    assert list(groups) == ["a", "b"]
    rules, use = rule_use(groups)
    assert rules == ["Y", "X", "Z"]
    assert np.array_equal(use, [[0.0, 9.0], [3.0, 1.0], [0.5, 0.0]])


def test_the_best_so_far_starts_at_the_original_and_never_rises() -> None:
    run = entry("a", 1.6, {})
    assert best_so_far(run, "seconds") == ([0.0, 2.0, 5.0, 8.0], [10.0, 8.0, 6.25, 6.25])
    assert best_so_far(run, "measurements") == ([0.0, 3.0, 9.0, 12.0], [10.0, 8.0, 6.25, 6.25])


@pytest.mark.parametrize("spec", ["random", "greedy:beam=2,depth=3", "taso:alpha=inf", "mcts"])
def test_results_carry_actions_trajectory_and_histogram(tmp_path: Path, spec: str) -> None:
    problem = chain_problem(tmp_path, 2, "both")
    options = {"cost": graph_cost} if spec.startswith("taso") else {}
    result = make_agent(spec, **options).optimize(problem, Budget(80, 60.0))
    found = json.loads(json.dumps(result_entry(result, problem, None), allow_nan=False))
    assert replay(problem, [rewrite["key"] for rewrite in found["rewrites"]]).hash == (
        result.graph.hash if found["rewrites"] else problem.model.graph.hash
    )
    assert found["applications"] == result.applications > 0
    assert sum(found["rule_histogram"].values()) == sum(rewrite["sites"] for rewrite in found["rewrites"])
    assert found["rules_applied"] == len({rewrite["rule"] for rewrite in found["rewrites"]})
    points = found["improvements"]
    for name in ("seconds", "measurements", "applications", "speedup"):
        values = [point[name] for point in points]
        assert values == sorted(values)
    assert [[p["seconds"], p["measurements"], p["speedup"]] for p in points] == found["trajectory"]
    assert max(point["speedup"] for point in points) == pytest.approx(max(1.0, found["speedup"]))


def test_failed_graphs_are_no_improvement(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    problem.meter.failing = {"Relu": "crash"}  # type: ignore[attr-defined]
    search = Search(problem, Budget())
    search.measure(problem.model.graph, ())
    assert search.improvements == []
    search.measure(problem.rewriter.candidates(problem.model.graph)[0].apply(), ())
    assert len(search.improvements) == 1


@pytest.mark.parametrize("limits", [(-1, 60.0, None), (1, -0.5, None), (1, 60.0, -3), (1, float("nan"), None)])
def test_a_negative_budget_is_refused(limits: tuple[int, float, int | None]) -> None:
    with pytest.raises(ValueError, match="must be 0 or more"):
        Budget(*limits)


@pytest.mark.parametrize("name", ["random", "greedy", "taso", "mcts"])
@pytest.mark.parametrize("applications", [0, 1, 9])
def test_every_agent_keeps_a_budget_of_applications(tmp_path: Path, name: str, applications: int) -> None:
    problem = chain_problem(tmp_path, 2, "both")
    options = {"cost": graph_cost} if name == "taso" else {}
    result = make_agent(name, **options).optimize(problem, Budget(1000, 60.0, applications=applications))
    assert result.applications <= applications


def test_agents_with_options_give_file_names() -> None:
    assert file_name("greedy:beam=3,lookahead=2") == "greedy-beam-3-lookahead-2"


def test_e_graphs_record_their_growth_and_it_is_drawn(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    prices = OperatorPrices(lambda spec: WEIGHTS.get(spec.op, 1.0))
    result = TensatAgent(prices=prices).optimize(problem, Budget(5, 60.0))
    found = result_entry(result, problem, None)
    first, *rest = found["growth"]
    assert first == {"rule": "", "nodes": from_graph(problem.model.graph).size, "cost_ms": 12.0}
    assert {point["rule"] for point in rest} <= {rule.name for rule in problem.rewriter.rules}
    assert [point["nodes"] for point in rest] == sorted(point["nodes"] for point in rest)
    assert rest[-1]["cost_ms"] == costs_of_all(2)[0] - 1.0
    assert tmp_path / "egraph.png" in save_plots(summary(found), tmp_path)
    sizes, costs = draw_growth(summary(found)).axes
    assert list(sizes.lines[0].get_ydata()) == [point["nodes"] for point in found["growth"]]
    assert list(costs.lines[0].get_ydata()) == [point["cost_ms"] for point in found["growth"]]
    assert tmp_path / "egraph.png" not in save_plots(summary({**found, "growth": []}), tmp_path)


def test_a_run_without_a_latency_has_no_line(tmp_path: Path) -> None:
    """Its time was over before the original was measured."""
    late = {**entry("greedy", 1.0, {}), "latency_ms": None, "improvements": []}
    assert {path.name for path in save_plots(summary(late, entry("taso", 1.3, {"A": 2})), tmp_path)} == PLOTS
    assert "latency.png" in {path.name for path in save_plots(summary(late), tmp_path)}
