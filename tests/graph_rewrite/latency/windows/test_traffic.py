"""The memory that a model passes through the caches, and what is read in its place between runs of a window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from graph_rewrite import Graph, load
from graph_rewrite.latency.windows import traffic_of
from graph_rewrite.latency.windows.traffic import MOST_TRAFFIC
from graph_rewrite.runtime.ort_worker.traffic import Traffic
from tests.graph_rewrite.sample_models import parsed

TABLE = """
(float[4, 8] x, int64[2] ids, float[1000, 8] table, float[8, 16] w) => (float[4, 16] y, float[2, 8] rows) {
    y = MatMul(x, w)
    rows = Gather(table, ids)
}
"""


def graph(text: str, folder: Path) -> Graph:
    onnx.save(parsed(text), folder / "model.onnx")
    return load(folder / "model.onnx")


def test_operands_and_results_count_and_of_a_table_what_is_picked(tmp_path: Path) -> None:
    product = 4 * (4 * 8 + 8 * 16 + 4 * 16)
    picked = 8 * 2 + 2 * 4 * (2 * 8)  # the ids; the rows, read and written
    assert traffic_of(graph(TABLE, tmp_path)) == product + picked


def test_more_than_any_cache_holds_counts_as_so_much(tmp_path: Path) -> None:
    large = TABLE.replace("[4, 8]", "[4000000, 8]").replace("[4, 16]", "[4000000, 16]")
    assert traffic_of(graph(large, tmp_path)) == MOST_TRAFFIC


def test_nothing_is_read_for_a_model_by_itself() -> None:
    assert Traffic().between(0, [np.zeros(3)]) is None


@pytest.mark.parametrize("value", [
    np.ones((7, 33), np.float32), np.zeros(0, np.int64), np.ones((4, 4), np.float16).T, np.array(["a", "b"], object),
    np.array(3.0), np.array([True, False]),
])  # fmt: skip
def test_any_input_may_be_read(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    before = value.copy()
    between = Traffic().between(1000, [value])
    assert between is not None
    between()
    assert (value == before).all()


def test_memory_grows_as_is_asked_for_and_is_kept() -> None:
    traffic = Traffic()
    for size in (1 << 20, 1 << 10, 3 << 20):
        between = traffic.between(size, [])
        assert between is not None
        between()
        assert traffic._memory.nbytes >= size
    kept = traffic._memory
    assert traffic.between(1 << 20, []) is not None
    assert traffic._memory is kept
