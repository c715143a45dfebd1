"""Tables and plots of results files: failures are shown, odd files are drawn, what is stale is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks import RESULTS
from benchmarks.figures import __main__ as command
from benchmarks.figures.maps import draw_rules, rule_sites
from benchmarks.figures.overview import overview
from benchmarks.figures.page import checks, page
from benchmarks.figures.rows import read_results
from benchmarks.figures.style import drawn_from, save
from benchmarks.figures.tables import ahead_table, behind_table, models_table, summary
from benchmarks.figures.writing import stale, write
from benchmarks.protocol.table import table_files
from graph_rewrite.errors import UserError
from tests.benchmarks.figures.made_up import row, typical, write_results

ODD: dict[str, list[dict[str, Any]]] = {
    "no rows": [],
    "one model, one agent": [row("bert", "greedy", 1.2)],
    "all failed": [row("bert", "greedy", None), row("vgg19", "regional", None, failure="out | of memory")],
    "peers only": [row("bert", "openvino", 1.1, None), row("bert", "onnxsim", None, None)],
    "failed search times": [row("bert", "random", 1.0, seconds=None), row("bert", "random", None, 1)],
    "two budgets, different models": [
        row("bert", "regional", 1.4), row("vgg19", "regional", 2.5, budget_s=600.0, curve=[]), row("vit", "taso", 1.0),
    ],
    "many seeds": [row("bert", "random", 1 + seed / 10, seed) for seed in range(8)],
    "numbers that are none": [
        row("bert", "mcts", float("nan")), row("vit", "mcts", 1.0) | {"speedup": 0.0}, row("vgg19", "mcts", -1.0),
    ],
}  # fmt: skip
LARGEST = 150_000
"""Bytes of a plot at most."""


def lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if "---" not in line]


def test_failed_and_unverified_runs_are_shown_and_count_as_the_original(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path / "cpu-t1.json", typical()))
    heading, bert, vgg, mean = lines(models_table(results, results.series("agent", "peer")))
    assert heading == ["model", "original", "regional", "greedy", "openvino", "onnxslim"]
    assert bert[0] == "bert"
    assert bert[1] == "12 ms"
    assert bert[3].startswith("1.10 ("), "1.2 and an unverified 1.3, which counts as 1.0"
    assert bert[3].endswith(", 1 of 2 failed")
    assert bert[4].startswith("**1.70** (1.67 to 1.73)")
    assert vgg[2].startswith("**2.00** (")
    assert vgg[5] == "failed: onnxslim is not installed"
    assert mean[3].endswith(", 2 of 4 runs failed")
    assert mean[5] == "none"


def test_the_overview_shows_what_gains_most_first_and_no_levels_of_the_runtime(tmp_path: Path) -> None:
    rows = [
        row("bert", "regional", 1.1), row("bert", "openvino", 1.2, None), row("bert", "ort-basic", 0.9, None),
        row("vit", "regional", 1.5), row("vit", "openvino", 1.3, None), row("vit", "onnxsim", None, None),
        row("vgg19", "regional", None, failure="out of memory"), row("vgg19", "openvino", 1.0, None),
    ]  # fmt: skip
    results = read_results(write_results(tmp_path / "cpu-t1.json", rows))
    leader = results.leader()
    assert leader is not None
    table, _, under = overview(results, leader).partition("\n\n")
    heading, *shown, mean = lines(table)
    assert heading[2:] == [f"RewriteGym, {leader.budget_s:g} s", "OpenVINO"]
    assert [model for model, *_ in shown] == ["vit", "bert", "vgg19"]
    assert shown[0][2].startswith("**1.50** (")
    assert shown[1][2].startswith("1.10 (")
    assert [cells[3] for cells in shown] == ["1.30", "**1.20**", "1.00"]
    assert shown[2][2] == "failed: out of memory"
    assert mean[0] == "geometric mean"
    assert "95% intervals" in under


def test_a_series_that_lacks_models_says_so(tmp_path: Path) -> None:
    rows = [row("bert", "regional", 1.5), row("vit", "regional", 1.5), row("vit", "taso", 2.0)]
    results = read_results(write_results(tmp_path / "a.json", rows))
    _, bert, _, mean = lines(models_table(results, results.series("agent")))
    assert bert[3] == "not run"
    assert mean[3] == "2.00 (1.96 to 2.04), 1 of 2 models"


def test_searches_that_keep_the_original_say_so_and_share_nothing(tmp_path: Path) -> None:
    rows = [row("bert", "regional", 1.0, seed, speedup_ci95=[1.0, 1.0]) for seed in range(3)]
    results = read_results(write_results(tmp_path / "a.json", rows))
    _, bert, mean = lines(models_table(results, results.series("agent")))
    assert bert[2] == "the original"
    assert mean[2] == "1.00 (1.00 to 1.00)"
    assert list(checks(results))[-1].startswith("0 seeds share")


def test_an_agent_with_two_budgets_has_two_columns(tmp_path: Path) -> None:
    rows = [row("bert", "regional", 1.5), row("bert", "regional", 1.8, budget_s=600.0), row("bert", "taso", 1.1)]
    results = read_results(write_results(tmp_path / "a.json", rows))
    assert [series.label for series in results.series("agent")] == ["regional, 60 s", "regional, 600 s", "taso"]
    leader = results.leader()
    assert leader is not None
    assert leader.label == "regional, 60 s"


def test_the_page_has_every_run(tmp_path: Path) -> None:
    rows = typical()
    results = read_results(write_results(tmp_path / "cpu-t1.json", rows))
    text = page(results, {"speedups": "x-speedups.png"})
    told = [line for line in lines(text) if len(line) == 13 and line[0] != "run"]
    assert [line[:2] for line in told if line[0] == "greedy"] == [["greedy", "0"], ["greedy", "1"]] * 2
    assert len(told) == len(rows)
    assert sum("outputs differ" in line for line in text.splitlines() if line.startswith("| greedy")) == 1
    assert "](x-speedups.png)" in text


def test_checks_name_what_failed_what_is_slower_and_what_is_shared(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path / "cpu-t1.json", typical()))
    failed, slower, control, shared = checks(results)
    assert failed == (
        "14 runs, of which 4 failed: greedy on bert (outputs differ); greedy on vgg19 (it ended with -9: killed); "
        "onnxslim on bert, vgg19 (onnxslim is not installed)."
    )
    assert slower == "1 of 6 results of agents are surely slower than the original: vgg19 by greedy/0 (0.900)."
    assert control == "original against original: 2 of 2 intervals contain 1."
    assert shared.startswith("1 seeds share"), "both seeds of regional on vgg19 have 6 ms"


def test_peers_are_counted_against_the_default_agent(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path / "cpu-t1.json", typical()))
    leader = results.leader()
    assert leader is not None
    _, openvino, onnxslim = lines(ahead_table(results, leader))
    assert openvino[:5] == ["openvino", "2", "1", "1", "1"]
    assert onnxslim[1] == "0: onnxslim is not installed"


def test_where_a_peer_is_ahead_the_page_names_the_operators(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path / "cpu-t1.json", typical()))
    leader = results.leader()
    assert leader is not None
    _, bert = lines(behind_table(results, leader, {"bert": "MatMul 90%"}))
    assert bert[:3] == ["bert", "openvino", "1.70 (1.67 to 1.73)"]
    assert bert[3].startswith("1.55 (1.4")
    assert bert[4] == "MatMul 90%"
    assert "not profiled" in behind_table(results, leader, {})
    rows = [row("bert", "regional", 1.5), row("bert", "openvino", 1.4, None), row("bert", "onnxsim", None, None)]
    ahead = read_results(write_results(tmp_path / "a.json", rows))
    assert behind_table(ahead, ahead.series("agent")[0], {}) == ""


def test_the_page_tells_the_other_clock_and_disturbances(tmp_path: Path) -> None:
    more = {"cpu_speedup": 1.52, "cpu_speedup_ci95": [1.5, 1.54], "sessions_played": 6, "disturbed_sessions": [0, 4]}
    path = write_results(tmp_path / "a.json", [row("bert", "regional", 1.5, **more)], machine={"cpu": "C", "cores": 2})
    text = page(read_results(path), {})
    assert "| 1.500 (1.470 to 1.530) | 1.520 (1.500 to 1.540) | 2 of 6 |" in text
    assert "| machine: cores | 2 |" in text


def test_the_summary_compares_with_peers_and_names_those_without_a_result(tmp_path: Path) -> None:
    text = summary(read_results(write_results(tmp_path / "cpu-t1.json", typical())))
    assert "| model | original | regional | openvino |\n" in text
    assert "Models on which regional is ahead of each: openvino 1 of 2.\n" in text
    assert "Without a result on this machine: onnxslim (onnxslim is not installed).\n" in text
    alone = summary(read_results(write_results(tmp_path / "a.json", [row("bert", "onnxsim", None, None)])))
    assert "Without a result on this machine: onnxsim (no result).\n" in alone
    assert "against itself" not in text


def test_the_summary_has_the_controls_beside_the_default_agent(tmp_path: Path) -> None:
    rows = [*typical(), row("bert", "regional-unlearnt", 1.1, kind="control")]
    text = summary(read_results(write_results(tmp_path / "cpu-t1.json", rows)))
    assert "| model | original | regional | regional-unlearnt |\n" in text


def test_sites_are_means_over_the_runs_that_count(tmp_path: Path) -> None:
    rows = [
        row("bert", "regional", 1.5, 0, rewrites=[{"rule": "A", "sites": 4}, {"rule": "A", "sites": 2}]),
        row("bert", "regional", 1.5, 1, rewrites=[{"rule": "B", "sites": 1}]),
        row("bert", "regional", 1.5, 2, verified=False, rewrites=[{"rule": "C", "sites": 9}]),
    ]
    results = read_results(write_results(tmp_path / "a.json", rows))
    assert rule_sites(results, results.series("agent")[0]) == {"A": {"bert": 3.0}, "B": {"bert": 0.5}}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_drawn(name: str, tmp_path: Path) -> None:
    path = write_results(tmp_path / "cpu-t1.json", ODD[name])
    written = write(path)
    assert {tmp_path / "cpu-t1.md", tmp_path / "cpu-t1-summary.md"} <= set(written)
    assert stale(path) == []


def test_plots_are_light_and_stale_with_other_results(tmp_path: Path) -> None:
    path = write_results(tmp_path / "cpu-t1.json", typical())
    plots = [file for file in write(path) if file.suffix == ".png"]
    names = ("speedups", "overview", "peers", "profiles", "over-time", "rules", "search-time")
    assert sorted(plot.name for plot in plots) == sorted(f"cpu-t1-{name}.png" for name in names)
    assert all(0 < plot.stat().st_size <= LARGEST for plot in plots)
    for plot in plots:
        assert len(np.unique(imread(plot)[..., :3].reshape(-1, 3), axis=0)) > 3, "something is drawn"
    write_results(path, [*typical(), row("vit", "regional", 1.1)])
    texts = {tmp_path / f"cpu-t1{end}.md" for end in ("", "-summary", "-overview")}
    assert set(stale(path)) == {*plots, *texts}


def test_the_largest_heat_map_is_light(tmp_path: Path) -> None:
    used = [[{"rule": f"SomeQuiteLongRuleName{k}", "sites": k % 7 + 1} for k in range(m, m + 40, 2)] for m in range(16)]
    rows = [row(f"a-long-name-{m}", "regional", 1.5, rewrites=rewrites) for m, rewrites in enumerate(used)]
    results = read_results(write_results(tmp_path / "cpu-t1.json", rows))
    plot = save(draw_rules(results, results.series("agent")[0]), results, tmp_path / "rules.png")
    assert plot.stat().st_size <= LARGEST
    assert drawn_from(plot) == results.digest


def test_check_fails_where_a_figure_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_results(tmp_path / "cpu-t1.json", [row("bert", "regional", 1.5)])
    monkeypatch.setattr("sys.argv", ["figures", str(path)])
    assert command.main() == 0
    monkeypatch.setattr("sys.argv", ["figures", str(path), "--check"])
    assert command.main() == 0
    table = tmp_path / "cpu-t1-summary.md"
    table.write_text(table.read_text().replace("1.50", "1.60"))
    assert command.main() == 1


def test_summary_names_machine_and_commit(tmp_path: Path) -> None:
    results = read_results(write_results(tmp_path / "cpu-t1.json", typical(), machine={"cpu": "Other CPU [avx512f]"}))
    assert "Other CPU · commit 012345678 · cpu-t1.json" in summary(results)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rows": [{}], "machine": "m", "commit": "c"}', None])
def test_other_files_are_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=r"a\.json"):
        read_results(path)


def test_the_results_of_the_repository_are_as_their_figures_show_them() -> None:
    """Else: python -m benchmarks.figures"""
    assert [file for path in table_files(RESULTS) for file in stale(path)] == []
