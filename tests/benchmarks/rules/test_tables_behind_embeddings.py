"""The judgement of tables behind embeddings, with a planted meter."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.rules import tables_behind_embeddings as tables
from benchmarks.rules.transformer_layers import embedded
from graph_rewrite import Graph
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Latency
from graph_rewrite.runtime import Rotation
from graph_rewrite.task.input_data import model_inputs

GRAPH = embedded(8, 16, 1000)


def turns(kind: str, folder: Path) -> list[np.ndarray[Any, Any]]:
    return Rotation(model_inputs(GRAPH), tables.recipes(GRAPH, kind, folder, 3)).values["i"]


def test_kinds_of_inputs(tmp_path: Path) -> None:
    one, rotating, text = (turns(kind, tmp_path) for kind in tables.KINDS)
    assert [len(one), len(rotating), len(text)] == [1, 256, tables.TEXTS]
    np.testing.assert_array_equal(one[0], rotating[0])
    for values in (rotating, text):
        assert {value.shape for value in values} == {(1, 8)}
        assert 0 <= np.min(values) < np.max(values) < 1000
    assert np.median(text) < 100 < 400 < np.median(rotating)
    np.testing.assert_array_equal(text, turns("text", tmp_path))
    with pytest.raises(UserError, match="no inputs 'nothing'"):
        tables.recipes(GRAPH, "nothing", tmp_path, 0)


def test_ranks_are_as_frequent_as_words() -> None:
    drawn = tables.zipf(np.random.default_rng(0), 50, (200_000,))
    counts = np.bincount(drawn, minlength=50)
    assert len(counts) == 50
    expected = np.log1p(1 / np.arange(1, 51)) / np.log(51)
    np.testing.assert_allclose(counts / counts.sum(), expected, rtol=0.1)


@dataclass
class PlantedMeter:
    compared: list[tuple[Graph, Graph]]

    def compare(self, without: Graph, variant: Graph) -> Latency:
        self.compared.append((without, variant))
        return Latency(8.0, 1.25, (1.2, 1.3), 7, 10.0)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> PlantedMeter:
    @dataclass
    class Model:
        graph: Graph

    planted = PlantedMeter([])

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[PlantedMeter]:
        yield planted

    monkeypatch.setattr(tables, "open_model", lambda _: Model(GRAPH))
    monkeypatch.setattr(tables, "ort_meter", opened)
    return planted


def test_rows(meter: PlantedMeter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--models", "bert-tiny", "--refuse", "SkipLayerNormFusion", "--json"]
    given += ["--lists", "ThreeLinearsOfEmbedding", "NormOfLookup"]
    monkeypatch.setattr(sys, "argv", ["tables", *given])
    tables.main()
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["rows"]
    assert [row["inputs"] for row in rows] == list(tables.KINDS)
    assert {(row["model"], row["rules"], row["speedup"], row["with_ms"]) for row in rows} == {
        ("bert-tiny", "ThreeLinearsOfEmbedding", 1.25, 8.0)
    }
    assert rows[0]["table_mb"] == pytest.approx(1000 * 48 * 4 / 1e6, abs=0.1)
    assert "NormOfLookup has no site" in printed.err
    for without, variant in meter.compared:
        assert without.disabled_optimizers == variant.disabled_optimizers == {"SkipLayerNormFusion"}
        assert len(variant.nodes) != len(without.nodes)
