"""The command that lists the mutants of a model: its listing, its refusals, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from graph_rewrite import __main__ as library
from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate import cli
from graph_rewrite.mutate.search import Limits, Mutant, Mutants, mutants_of
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.onnx_files.saving import save
from tests.graph_rewrite.mutate.test_search import one_convolution, weights


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(one_convolution(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_mutants_are_listed_as_json_and_as_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mutate", str(path), "--depth", "1", "--time-limit", "20s"]
    assert library.main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["complete"]
    assert data["subprograms"][0]["inputs"] == [[2, 4, 8, 8], [6, 4, 3, 3], [6]]
    assert [refused["reason"] for refused in data["refused"]] == ["Relu is not linear"]
    assert library.main(arguments) == 0
    assert "mutants of 1 subprograms" in capsys.readouterr().out


def test_ctrl_c_ends_it_with_what_was_found(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(mutant: Mutant) -> None:
        raise KeyboardInterrupt

    def interrupted(graph: Graph, limits: Limits) -> Mutants:
        return mutants_of(graph, limits, interrupt)

    monkeypatch.setattr(cli, "mutants_of", interrupted)
    assert library.main(["mutate", str(path), "--json"]) == 130
    data = json.loads(capsys.readouterr().out)
    assert not data["complete"]
    assert [len(sub["mutants"]) for sub in data["subprograms"]] == [1]


def test_the_time_limit_ends_it_with_status_0(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert library.main(["mutate", str(path), "--time-limit", "0.05"]) == 0
    assert "The search was cut short: there may be more." in capsys.readouterr().out


def test_what_is_too_large_is_named_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = model("(float[1,64,200,200] x) => (z) { y = Conv<pads=[1,1,1,1]>(x, w) z = Relu(y) }",
                  w=weights(128, 64, 3, 3))  # fmt: skip
    save(graph, tmp_path / "large.onnx")
    assert library.main(["mutate", str(tmp_path / "large.onnx")]) == 0
    printed = capsys.readouterr().out
    assert "not searched: too large to be proved at its real shape" in printed
    assert "0 mutants of 0 subprograms" in printed


@pytest.mark.parametrize(
    ("more", "message"),
    [(["--depth", "5"], "--depth"), (["--keep", "0"], "--keep"), (["--time-limit", "soon"], "--time-limit")],
)
def test_wrong_arguments(more: list[str], message: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert library.main(["mutate", str(path), *more]) == 2
    assert message in capsys.readouterr().err


def test_a_model_with_symbolic_shapes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "g (float[N,4] x) => (float[N,4] y) { y = Add(x, x) }"
    opset = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(onnx.parser.parse_graph(text), opset_imports=opset, ir_version=10), tmp_path / "s")
    assert library.main(["mutate", str(tmp_path / "s")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
