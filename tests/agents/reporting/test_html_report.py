"""The HTML report: its structure, its figures, and names that try to be markup."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.base import Budget
from agents.core.registry import make_agent
from agents.reporting.html import OptimizationReport, html_report, write_report
from agents.reporting.html.evidence import report_of, rewrite_details
from agents.reporting.html.markup import Html, html, tag
from agents.reporting.html.numbers import milliseconds
from agents.reporting.runs import result_entry
from graph_rewrite.errors import UserError
from tests.agents.reporting.html_pages import HOSTILE, entry, full_report, read
from tests.agents.toys import chain_problem

URLS = re.compile(r"https?:|//|url\(|@import", re.IGNORECASE)


def test_a_page_is_whole_and_needs_no_network_and_no_script() -> None:
    document = html_report(full_report())
    page = read(document)
    assert document.startswith("<!doctype html>")
    assert page.balanced
    assert not page.names() & {"script", "link", "img", "iframe", "object", "a"}
    assert not URLS.search(document.replace("file:///", ""))
    policy = next(
        a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert str(policy).startswith("default-src 'none'")
    assert ("html", {"lang": "en"}) in page.tags


def test_the_first_line_is_the_deployment() -> None:
    page = read(html_report(full_report()))
    body = page.text[page.text.index("CPU provider") :]
    assert body.startswith(
        "CPU provider \N{MIDDLE DOT} 3 threads \N{MIDDLE DOT} ONNX Runtime 1.31.0 \N{MIDDLE DOT} A CPU"
    )
    header = [tag for tag, _ in page.tags].index("header")
    assert page.tags[header + 1] == ("p", {"class": "deployment"})


def test_headings_go_down_one_level_at_a_time_and_name_their_sections() -> None:
    page = read(html_report(full_report()))
    levels = [int(t[1]) for t, _ in page.tags if re.fullmatch(r"h[1-6]", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    ids = [a["id"] for t, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert all(a["aria-labelledby"] in ids for t, a in page.tags if t == "section")
    drawings = [a for t, a in page.tags if t == "svg" and a.get("aria-hidden") != "true"]
    assert drawings
    assert all(a["role"] == "img" for a in drawings)


def test_figures_are_those_of_the_json() -> None:
    given_entry = entry()
    figures = read(html_report(full_report())).figures
    for name in ("speedup", "baseline_ms", "latency_ms", "max_rel_error"):
        assert given_entry[name] in figures, name
    for side in ("before", "after"):
        assert {given_entry["memory"][side]["weights"], given_entry["memory"][side]["peak"]} <= set(figures)
    # The interval of the latency is that of the speed-up.
    assert [x for x in figures if x == pytest.approx(11.5 / 1.4625) or x == pytest.approx(11.5 / 1.4125)] != []
    assert {1.25, 0.125, 0.75} <= set(figures)
    assert {250.0, 500.0, 8e7, 9e7, 4_100_000, 6_600_000, 1e-4} <= set(figures)


def test_rewrites_are_told_in_order_with_what_they_save() -> None:
    text = read(html_report(full_report())).text
    assert text.index("FuseA") < text.index("EnableB") < text.index("Together")
    assert "saves 1.25 ms" in text
    assert "costs 0.125 ms" in text
    assert "saving not known by itself" in text
    assert "Substitutions 2 and 3 save 0.750 ms together." in text
    assert "Relu(Conv(x, w)) = FusedConv(x, w)" in text
    assert "2 of 90 measurements failed; the first error was: no kernel" in text


@pytest.mark.parametrize("field", ["names in graphs", "json"])
def test_hostile_names_are_text(field: str) -> None:
    if field == "json":
        rewrite = {"rule": HOSTILE, "where": HOSTILE, "description": HOSTILE, "sites": 1, "saved_ms": None}
        report = OptimizationReport.from_json(
            entry(
                model=f"file:{HOSTILE}", rewrites=[rewrite], message=HOSTILE, first_error=HOSTILE, warnings=[HOSTILE],
                onnx_path=HOSTILE, rule_faults={HOSTILE: 1},
            )
        )  # fmt: skip
    else:
        report = full_report(HOSTILE)
    document = html_report(report)
    page = read(document)
    assert page.balanced
    assert not page.names() & {"script", "img"}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "<script>alert(1)</script>" in page.text
    assert page.names() - read(html_report(full_report())).names() == set()
    document.encode("utf-8")


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    page = read(tag("p", text, title=text))
    assert page.balanced
    assert [t for t, _ in page.tags] == ["p"]
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
    assert "".join(page.texts) == shown
    assert page.tags[0][1]["title"] == shown


def test_markup_is_escaped_once() -> None:
    inner = tag("b", "1 < 2")
    assert tag("p", inner) == "<p><b>1 &lt; 2</b></p>"
    assert html(html("<")) == "&lt;"
    assert isinstance(inner, Html)


def test_a_report_of_json_alone_leaves_out_what_only_graphs_tell() -> None:
    page = read(html_report(OptimizationReport.from_json(json.loads(json.dumps(entry())))))
    assert page.balanced
    assert "Operators that changed" not in page.text
    assert "Drawing" not in page.text
    assert "FuseA at a: X -> Y" in page.text
    assert 1.4375 in page.figures


def test_recorded_actions_tell_the_sites_without_the_graphs() -> None:
    steps = [{"at": [{"where": "relu<1>"}, {"where": "relu2"}]}, {"at": []}]
    report = OptimizationReport.from_json(entry(actions={"steps": steps}))
    assert report.details_of(0).where == ("relu<1>", "relu2")
    assert report.details_of(2).where == ()
    assert "at relu<1>, relu2" in read(html_report(report)).text


@pytest.mark.parametrize("missing", ["speedup", "rewrites", "deployment"])
def test_other_json_is_refused(missing: str) -> None:
    values = entry()
    del values[missing]
    with pytest.raises(UserError, match=f"no field '{missing}'"):
        OptimizationReport.from_json(values)


def test_an_original_that_is_kept_says_why() -> None:
    kept = entry(rewrites=[], speedup=1.0, speedup_ci95=[1.0, 1.0], message="the original is kept: nothing was faster")
    page = read(html_report(OptimizationReport.from_json(kept)))
    assert "The original is kept" in page.text
    assert "nothing was faster" in page.text
    assert "Substitutions" not in page.text
    assert page.figures.count(8.0) == 0  # there is no after
    assert 11.5 in page.figures


@pytest.mark.parametrize(
    ("ms", "shown"),
    [(0.0042651, "0.00427 ms"), (0.5, "0.500 ms"), (1.25, "1.25 ms"), (45.678, "45.7 ms"), (1234.5, "1234 ms")],
)
def test_milliseconds_have_three_digits_that_mean_something(ms: float, shown: str) -> None:
    page = read(milliseconds(ms))
    assert page.text == shown
    assert page.figures == [ms]


def test_symbolic_dimensions_are_told() -> None:
    dynamic = {"bound": {"batch": 8}, "symbolic": True, "verified_at": [{"batch": 1}, {"batch": 3}], "left_out": []}
    text = read(html_report(OptimizationReport.from_json(entry(dynamic=dynamic)))).text
    assert "the model keeps its symbolic dimensions: searched at batch=8, compared at 2 other shapes" in text


def test_a_latency_that_nobody_measured_is_unknown() -> None:
    unknown = entry(latency_ms=None, baseline_ms=None, rewrites=[], speedup=1.0, speedup_ci95=[1.0, 1.0])
    assert "unknown" in read(html_report(OptimizationReport.from_json(unknown))).text


def test_a_real_result_has_its_rewrites_followed(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2, "class")
    result = make_agent("greedy:beam=4,depth=3").optimize(problem, Budget(300, 60.0))
    assert len(result.actions) == 3
    written = result.checked.write_to(tmp_path / "fast.onnx")
    report = report_of(result, problem, result_entry(result, problem, written))
    assert [detail.where for detail in report.details] == [("relu0", "relu1")] * 1 + [("r0", "r1")] * 2
    first = report.details[0]
    assert first.equation == "Relu(x) = ThresholdedRelu(x, alpha=0)"
    assert first.before is not None
    assert first.after is not None
    assert [(step.op, step.label) for step in first.before.steps] == [("Relu", "relu0")]
    assert [step.op for step in first.after.steps] == ["ThresholdedRelu"]
    assert first.before.outputs[0].step == 0
    assert first.before.names == first.after.names == ("r0 float[2,3]",)
    assert report.operators == ({"Relu": 2, "Tanh": 2}, {"Clip": 2, "Tanh": 2})
    assert report.files == (problem.model.path.stat().st_size, result.checked.path.stat().st_size)
    assert report.footprints is not None
    assert all(side.load_s > 0.0 and side.peak_bytes > 10_000_000 for side in report.footprints)
    page = read(html_report(report))
    assert page.balanced
    assert result.latency.speedup in page.figures


def test_rewrites_that_cannot_be_followed_are_told_without_drawings(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    result = make_agent("greedy:beam=4,depth=3").optimize(problem, Budget(300, 60.0))
    first, second, third = result.actions
    found = rewrite_details(problem, (first, third, second))
    assert found[0].before is not None
    assert [detail.before for detail in found[1:]] == [None, None]
    assert found[1].equation == "LeakyRelu(x, alpha=0) = Clip(x, 0)"


def test_a_report_is_written_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write_report(full_report(), path) == path
    assert read(path.read_text("utf-8")).balanced
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(OSError, match="No such file"):
        write_report(full_report(), tmp_path / "nowhere" / "report.html")
