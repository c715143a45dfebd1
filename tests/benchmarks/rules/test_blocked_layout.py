"""The benchmark of the blocked layout: which forms it takes, and what it makes of a small network."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rules import blocked_layout, families
from benchmarks.rules.blocked_layout import BlockedSpeedup, best_forms, rewritten, takes_best, write
from graph_rewrite import Rewriter
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators import nchwc
from graph_rewrite.rules.convolution.winograd import WinogradRows4Relu
from tests.graph_rewrite.rules.checking import random_feeds, run_onnxruntime, weights

ENTRY = BlockedSpeedup("m", 1.0, (1.0, 0.9, 1.1), (1.2, 1.1, 1.3), (1.1, 1.0, 1.2), 1e-6, (1, 2, 3), 4)


def table(path: Path, *rows: tuple[str, str, float]) -> Path:
    entries = [{"family": "winograd", "shape": shape, "form": form, "speedup": s} for shape, form, s in rows]
    path.write_text(json.dumps({"rows": entries}))
    return path


def layer(channels: int, size: int):
    return model(
        f"(float[1,{channels},{size},{size}] x) => (y) {{ a = Conv<pads=[1,1,1,1]>(x, w)  y = Relu(a) }}",
        w=weights(channels, channels, 3, 3) / channels,
    )


@pytest.fixture
def forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (("16 @ 8x8, 3x3", "Rows2", 1.2), ("16 @ 8x8, 3x3", "Rows4", 1.5), ("64 @ 8x8, 3x3", "Rows4", 1.05))
    monkeypatch.setattr(families, "FILE", table(tmp_path / "families.json", *rows))


def test_the_fastest_form_is_taken_where_it_gains(forms: None) -> None:
    assert best_forms() == {(16, 8, "3x3"): "Rows4", (64, 8, "3x3"): ""}


@pytest.mark.parametrize(
    ("channels", "size", "taken"), [(16, 8, True), (32, 12, True), (64, 8, False), (16, 40, False)]
)
def test_forms_are_those_of_the_most_similar_shape(forms: None, channels: int, size: int, taken: bool) -> None:
    rewriter = Rewriter([WinogradRows4Relu()], granularity="site", deployment=False)
    (candidate,) = rewriter.candidates(layer(channels, size))
    assert takes_best(best_forms())(candidate) is taken


@pytest.mark.skipif(not nchwc.block_size(), reason="ONNX Runtime has no blocked layout on this CPU")
def test_both_results_compute_what_the_network_does(forms: None) -> None:
    graph = model(
        "(float[1,16,8,8] x) => (y) { a = Conv<pads=[1,1,1,1]>(x, w)  b = Relu(a)  y = ReduceMean(b) }",
        w=weights(16, 16, 3, 3) / 16,
    )
    feeds = random_feeds(graph)
    standard, explicit = rewritten(graph)
    assert not any(node.domain for node in standard.nodes.values())
    assert len(standard.nodes) > len(graph.nodes)
    assert any(node.domain == nchwc.DOMAIN for node in explicit.nodes.values())
    for found in (standard, explicit):
        np.testing.assert_allclose(run_onnxruntime(found, feeds)[0], run_onnxruntime(graph, feeds)[0], atol=1e-5)


def test_entries_of_other_models_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "blocked_layout.json"
    monkeypatch.setattr(blocked_layout, "FILE", path)
    monkeypatch.setattr(blocked_layout, "device_name", lambda provider: "a machine")
    write([ENTRY])
    other = replace(ENTRY, model="n")
    write([other])
    assert [entry["model"] for entry in json.loads(path.read_text())["models"]] == ["m", "n"]
    write([ENTRY])
    assert [entry["model"] for entry in json.loads(path.read_text())["models"]] == ["n", "m"]
