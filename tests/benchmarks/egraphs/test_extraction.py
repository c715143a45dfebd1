"""The comparison of extraction methods on graphs whose only choice is known."""

import json
from pathlib import Path

from onnx import helper

from benchmarks.egraphs.extraction import compare, rows
from graph_rewrite.egraph import from_graph
from graph_rewrite.task.models import open_model
from tests.envs.fakes import _write

RESIDUALS = 12


def write_residuals(folder: Path) -> str:
    """x + relu(x), twelve times: 24 operators, of which tree costs see 2 ** 12 copies of the first."""
    nodes, x = [], "x"
    for i in range(RESIDUALS):
        nodes.append(helper.make_node("Relu", [x], [f"r{i}"]))
        nodes.append(helper.make_node("Add", [x, f"r{i}"], [f"a{i}"]))
        x = f"a{i}"
    return f"file:{_write(folder / 'residuals.onnx', nodes, [], (2, 3), x)}"


def test_tree_costs_explode_where_the_others_are_exact(tmp_path: Path) -> None:
    found = compare(from_graph(open_model(write_residuals(tmp_path)).graph))
    assert {method: one.estimate for method, one in found.items() if method != "tree"} == {
        "shared": 24.0, "dag": 24.0, "ilp": 24.0,
    }  # fmt: skip
    # Cost of a block's output: c -> 2 c + 2, from 0.
    assert found["tree"].estimate == 2.0 ** (RESIDUALS + 1) - 2.0
    assert {one.cost for one in found.values()} == {24.0}
    assert found["ilp"].gap == 0.0


def test_a_line_per_model(tmp_path: Path) -> None:
    uri = write_residuals(tmp_path)
    header, line = rows((uri,), 30.0, tmp_path / "x.json")
    assert header.split() == ["model", "tree", "shared", "dag", "ilp", "true"]
    assert line.removeprefix(uri).split() == ["8190", "24", "24", "24", "24"]
    (row,) = json.loads((tmp_path / "x.json").read_text())["rows"]
    assert (row["model"], row["tree"], row["shared"], row["true"], row["gap"]) == (uri, 8190.0, 24.0, 24.0, 0.0)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
