"""Opening models by URI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from graph_rewrite import ModelLoadError, zoo
from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.normalisation import SymbolicShapeError
from graph_rewrite.task.models import open_model
from tests.graph_rewrite.sample_models import parsed, weights

TEXT = "(float[N,3] x) => (float[N,4] y) { t = Transpose(w)  y = MatMul(x, t) }"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model with space.onnx"
    onnx.save(parsed(TEXT.replace("N", "2"), weights("w", 4, 3), opset=20), path)
    return path


@pytest.fixture
def exported(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, object]]]:
    """Record the requests to the zoo, which gives the same small model every time."""
    asked: list[tuple[str, Mapping[str, object]]] = []

    def export(name: str, /, **params: int | str) -> Path:
        zoo.registry.configure(name, params)
        asked.append((name, params))
        return path

    monkeypatch.setattr(zoo, "export", export)
    return asked


class TestFiles:
    def test_original_and_normalised(self, path: Path) -> None:
        model = open_model(str(path))
        assert model.path == path
        assert model.original.opset == 20
        assert model.graph.opset == 23
        assert [node.op for node in model.original.order()] == ["Transpose", "MatMul"]
        assert [node.op for node in model.graph.order()] == ["MatMul"]
        assert model.report.folded == 1

    def test_ways_to_name_a_file(self, path: Path) -> None:
        uris = [path.name, f"file:{path.name}", f"file:{path}", path.as_uri(), f"./{path.name}", f"file:/{path}"]
        hashes = {open_model(uri).original.hash for uri in uris}
        assert len(hashes) == 1
        assert [open_model(uri).uri for uri in uris] == uris

    def test_the_same_object_while_the_file_is_the_same(self, path: Path) -> None:
        first = open_model(str(path))
        assert open_model(str(path)) is first
        onnx.save(parsed(TEXT.replace("N", "5"), weights("w", 4, 3)), path)
        os.utime(path, ns=(1, 1))
        second = open_model(str(path))
        assert second is not first
        assert second.original.hash != first.original.hash

    def test_shapes_are_part_of_the_identity(self, path: Path) -> None:
        onnx.save(parsed(TEXT, weights("w", 4, 3)), path)
        with pytest.raises(SymbolicShapeError, match=r"x \[N, 3\].*--shape x:1,3"):
            open_model(str(path))
        three, four = (open_model(str(path), {"x": (n, 3)}) for n in (3, 4))
        assert str(three.graph.types[three.graph.outputs[0]]) == "float[3,4]"
        assert three is not four
        assert open_model(str(path), {"x": (3, 3)}) is three

    def test_the_target_opset_is_part_of_the_identity(self, path: Path) -> None:
        assert [open_model(str(path), target_opset=opset).graph.opset for opset in (None, 20, 22)] == [23, 20, 22]
        with pytest.raises(UserError, match="is in opset 20"):
            open_model(str(path), target_opset=17)
        assert [open_model(str(path), usual_opset=opset).graph.opset for opset in (21, 17)] == [21, 20]

    @pytest.mark.parametrize(
        ("uri", "reason"),
        [
            ("nothing.onnx", r"nothing\.onnx: cannot be opened: No such file"),
            ("file:nothing.onnx", "No such file"),
            ("bertt", "the zoo has bert, .*; did you mean 'bert'"),
            ("", "is a folder|cannot be read|No such file"),
        ],
    )
    def test_missing_files(self, path: Path, uri: str, reason: str) -> None:
        with pytest.raises(ModelLoadError, match=reason):
            open_model(uri)

    def test_unknown_schemes(self) -> None:
        with pytest.raises(ValueError, match=r"unknown scheme 'https' .*; use zoo://NAME"):
            open_model("https://example.org/model.onnx")


class TestZoo:
    def test_parameters(self, exported: list[tuple[str, Mapping[str, object]]]) -> None:
        model = open_model("zoo://bert?layers=2&seq_len=64")
        assert exported == [("bert", {"layers": "2", "seq_len": "64"})]
        assert model.uri == "zoo://bert?layers=2&seq_len=64"
        open_model("zoo://bert-tiny")
        open_model("bert-tiny")
        assert exported[1:] == [("bert-tiny", {}), ("bert-tiny", {})]

    @pytest.mark.parametrize(
        ("uri", "reason"),
        [
            ("zoo://bertt", "unknown model 'bertt'"),
            ("zoo://bert?depth=2", "unknown parameter 'depth'"),
            ("zoo://bert?layers=two", "layers must be an integer, got 'two'"),
            ("zoo://bert?layers=1.5", "must be an integer"),
            ("zoo://bert?layers=0", "layers must be at least 1"),
            ("zoo://bert?layers", "write zoo://NAME"),
            ("zoo://bert?layers=", "must be an integer"),
            ("zoo://bert?layers=2&layers=3", "a parameter is given twice"),
            ("zoo://bert/base", "write zoo://NAME"),
            ("zoo://", "unknown model ''"),
        ],
    )
    def test_mistakes(self, exported: list[tuple[str, Mapping[str, object]]], uri: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            open_model(uri)
        assert exported == []
