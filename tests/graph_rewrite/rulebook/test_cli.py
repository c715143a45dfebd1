"""`rewritegym rules` and `python -m graph_rewrite rules`: list, show and explain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite import __main__ as library
from graph_rewrite import save
from graph_rewrite.rulebook import cli, cli_catalogue
from graph_rewrite.rulebook.catalogue import all_sets
from graph_rewrite.rules import all_rules
from graph_rewrite.rules import certification as certificate
from graph_rewrite.rules.certification import Certificate
from tests.graph_rewrite.rules.checking import model, weights


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    graph = model(
        """(float[2,3] x) => (y) { a = Transpose<perm=[1,0]>(x) b = Transpose<perm=[1,0]>(a) c = Div(b, d)
        e = Div(c, d) y = Add(e, f) }""",
        d=weights(3) + 10, f=weights(3),
    )  # fmt: skip
    return save(graph, tmp_path / "model.onnx")


def test_list_prints_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    out = capsys.readouterr().out
    assert "DropIdentity" in out
    assert f"{len(all_sets())} rules" in out


def test_list_as_json_has_the_promised_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == [rule.name for rule in all_sets()]
    assert all(set(entry) == {"name", "family", "equation", "origin", "certificate"} for entry in entries)
    (drop,) = (entry for entry in entries if entry["name"] == "DropIdentity")
    assert (drop["family"], drop["origin"], drop["equation"]) == ("elimination", "hand", "Identity(x) = x")


def test_list_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--family", "pooling", "--origin", "hand", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == [rule.name for rule in all_rules() if rule.family == "pooling"]
    assert cli.main(["list", "--family", "poling"]) == 2
    assert "there is no family 'poling'; known are attention, " in capsys.readouterr().err
    assert cli.main(["list", "--origin", "elsewhere"]) == 2
    assert "known are " in capsys.readouterr().err


def test_certificates_are_listed_by_method_and_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = all_rules()[0]
    held = Certificate(
        rule.name, rule.digest, "hand", "proved", "", 0, 7, {"z3": 7, "floating-point": 7}, "", "1e-07", {}, (), {}, {}
    )
    monkeypatch.setattr(certificate, "load", lambda name, origin: held)
    assert cli_catalogue.entry(rule)["certificate"] == {
        "verdict": "proved", "method": "z3 + floating-point", "instances": 7,
    }  # fmt: skip
    monkeypatch.setattr(certificate, "load", lambda name, origin: None)
    assert cli_catalogue.entry(rule)["certificate"] is None


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("DropIdentity", ["elimination", "Identity(x) = x", "Identity(x)  =>  x", "class DropIdentity(", "def target"]),
        ("AddZero", ["refuses: the constant is not 0 everywhere", "certificate: "]),
        ("SplitOfConcat2", ["class _SplitOfConcat(", "class SplitOfConcat2(", "def target"]),
        ("DivAsMul", ["x / c = x * (1 / c)", "Exact where c is a power of two"]),
    ],
)
def test_show_prints_equation_notes_and_code(name: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", name]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in parts), out


def test_show_of_an_unknown_rule_names_close_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "ComposeTransposs"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean ComposeTransposes" in captured.err


def test_explain_tells_candidates_and_near_misses(model_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", str(model_file)]) == 0
    out = capsys.readouterr().out
    assert "ComposeTransposes" in out
    assert "DivAsMul" in out
    assert "AddZero" in out


def test_explain_as_json_names_sites_and_reasons(model_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", str(model_file), "--rule", "DivAsMul", "--rule", "AddZero", "--json"]
    assert cli.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == str(model_file)
    assert [(c["rule"], c["sites"]) for c in found["candidates"]] == [("DivAsMul", 2)]
    assert [(r["rule"], r["reason"]) for r in found["refusals"]] == [("AddZero", "the constant is not 0 everywhere")]
    assert found["refusals"][0]["site"]


def test_explain_takes_shapes_for_symbolic_dimensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    path = tmp_path / "symbolic.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])), path)
    assert cli.main(["explain", str(path)]) == 2
    assert "--shape x:" in capsys.readouterr().err
    assert cli.main(["explain", str(path), "--shape", "x:3,4", "--rule", "DropRepeated", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"][0]["rule"] == "DropRepeated"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "missing.onnx"], "missing.onnx"),
        (["explain", "missing.onnx", "--shape", "x=1,2"], "write it as NAME:1,128"),
        (["explain", "missing.onnx", "--shape", "x:1,batch"], "write it as NAME:1,128"),
        (["explain", "missing.onnx", "--rule", "NoSuchRule"], "there is no rule 'NoSuchRule'"),
    ],
)
def test_what_does_not_fit_is_one_line_on_standard_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_wrong_command_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["lst"])
    assert exit_info.value.code == 2
    assert library.main(["rule"]) == 2
    assert "rules" in capsys.readouterr().err
    assert library.main(["--help"]) == 0


def test_the_library_runs_as_a_program() -> None:
    """A reader that closes early (`| head`) is no error message."""
    program = subprocess.Popen(
        [sys.executable, "-m", "graph_rewrite", "rules", "list", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": ""},
        cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == b"[\n"
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait(30) in (0, 141)
