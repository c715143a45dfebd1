"""Refusals of unreadable models name the file, the fault and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from graph_rewrite import ModelLoadError, load
from graph_rewrite.onnx_files.saving import to_proto
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.sample_models import parsed, weights


class TestFaults:
    @pytest.fixture
    def external(self, tmp_path: Path) -> Path:
        model = parsed("(float[8] x) => (float[8] y) { y = Add(x, w) }", weights("w", 8))
        folder = tmp_path / "model"
        folder.mkdir()
        onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
        return folder / "m.onnx"

    def change(self, path: Path, key: str, value: str) -> None:
        model = onnx.load(path, load_external_data=False)
        entries = {entry.key: entry.value for entry in model.graph.initializer[0].external_data} | {key: value}
        del model.graph.initializer[0].external_data[:]
        for name, text in entries.items():
            model.graph.initializer[0].external_data.add(key=name, value=text)
        path.write_bytes(model.SerializeToString())

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(ModelLoadError, match=r"nothing\.onnx: no such file"):
            load(tmp_path / "nothing.onnx")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelLoadError, match="cannot be read"):
            load(tmp_path)

    @pytest.mark.parametrize("data", [b"", b"not a model", b"\x00" * 100, b"PK\x03\x04", bytes(range(256))])
    def test_not_an_onnx_model(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "m.onnx").write_bytes(data)
        with pytest.raises(ModelLoadError, match=r"m\.onnx: .*(not an ONNX model|empty|holds no graph)"):
            load(tmp_path / "m.onnx")

    @given(cut=st.floats(0.0, 1.0, exclude_max=True))
    def test_truncated_anywhere(self, tmp_path_factory: pytest.TempPathFactory, cut: float) -> None:
        model = sample_models.conditional()
        del model.opset_import[1:]  # a file without the last of several imports is a valid model
        data = model.SerializeToString()
        path = tmp_path_factory.mktemp("cut") / "m.onnx"
        path.write_bytes(data[: int(cut * len(data))])
        with pytest.raises(ModelLoadError, match=r"m\.onnx: "):
            load(path)

    def test_weights_missing(self, external: Path) -> None:
        (external.parent / "w.data").unlink()
        with pytest.raises(
            ModelLoadError, match=r"initializer 'w' should lie in .*w\.data, which does not exist; copy"
        ):
            load(external)

    def test_weights_truncated(self, external: Path) -> None:
        (external.parent / "w.data").write_bytes(bytes(31))
        with pytest.raises(ModelLoadError, match=r"ends at byte 32 of .*w\.data, which has only 31; .*again"):
            load(external)

    def test_weights_reached_by_a_symbolic_link(self, external: Path, tmp_path: Path) -> None:
        data = external.parent / "w.data"
        data.rename(tmp_path / "blob")
        data.symlink_to(tmp_path / "blob")
        with pytest.raises(ModelLoadError, match=r"symbolic link to .*blob, outside .* copy .*cp -L"):
            load(external)
        data.unlink()
        (tmp_path / "blob").rename(external.parent / "blob")
        data.symlink_to(external.parent / "blob")
        load(external)

    def test_the_model_itself_may_be_a_symbolic_link(self, external: Path) -> None:
        link = external.with_name("link.onnx")
        link.symlink_to(external)
        assert load(link).hash == load(external).hash

    def test_weights_with_a_second_hard_link(self, external: Path, tmp_path: Path) -> None:
        os.link(external.parent / "w.data", tmp_path / "second")
        with pytest.raises(ModelLoadError, match="several hard links"):
            load(external)

    @pytest.mark.parametrize(
        ("key", "value", "reason"),
        [
            ("location", "../w.data", "outside the model's folder"),
            ("location", "/etc/hostname", "outside the model's folder"),
            ("location", "", "names no file"),
            ("offset", "-4", "offset -4"),
            ("offset", "four", "no valid offset"),
            ("length", "31", "needs 32 bytes, the model gives it 31"),
        ],
    )
    def test_bad_references_to_weights(self, external: Path, key: str, value: str, reason: str) -> None:
        self.change(external, key, value)
        with pytest.raises(ModelLoadError, match=reason):
            load(external)

    @pytest.mark.parametrize(
        ("tensor", "reason"),
        [
            (TensorProto(name="w", data_type=1, dims=[8], raw_data=bytes(8)), "fewer bytes than .* needs"),
            (TensorProto(name="w", data_type=1, dims=[8], float_data=[1.0] * 7), "holds 7 numbers, .* needs 8"),
            (TensorProto(name="w", data_type=1, dims=[8]), "holds 0 numbers"),
            (TensorProto(name="w", data_type=1, dims=[-8]), "no valid type"),
            (TensorProto(name="w", dims=[8]), "no valid type"),
            (TensorProto(name="w", data_type=999, dims=[8]), "unknown element type 999"),
            (TensorProto(name="w", data_type=8, dims=[8], data_location=1), "strings in another file"),
        ],
    )
    def test_damaged_initializers(self, tensor: TensorProto, reason: str) -> None:
        with pytest.raises(ModelLoadError, match=f"initializer 'w'.*{reason}"):
            load(parsed("(float[8] x) => (float[8] y) { y = Add(x, w) }", tensor))

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("(float[2] x) => (float[2] y) { y = Add(x, z) }", "nothing defines the value 'z'"),
            ("(float[2] x) => (float[2] y) { z = Neg(x) }", "nothing defines the value 'y'"),
            ("(float[2] x) => (float[2] y) { y = Neg(x)  y = Abs(x) }", "'y' is defined twice"),
            ("(float[2] x) => (float[2] y) { y = Add(x, z)  z = Neg(y) }", "cycle"),
        ],
    )
    def test_broken_graphs(self, text: str, reason: str) -> None:
        with pytest.raises(ModelLoadError, match=reason):
            load(parsed(text))


class TestShapes:
    TEXT = "(float[N,3] x, float[M,3] z) => (float[N,3] y, float[K,3] w) { y = Relu(x)  w = Neg(z) }"

    def test_fixed_shapes_reach_every_value_and_the_file(self) -> None:
        graph = load(parsed(self.TEXT), {"x": (4, 3), "z": (5, 3)})
        assert [str(graph.types[value]) for value in graph.outputs] == ["float[4,3]", "float[5,3]"]
        saved = to_proto(graph)
        assert [dim.dim_value for dim in saved.graph.output[1].type.tensor_type.shape.dim] == [5, 3]
        onnx.checker.check_model(saved, full_check=True)

    def test_value_info_of_other_shapes_is_dropped(self) -> None:
        model = parsed("(float[N,3] x) => (float[N,3] y) { t = Relu(x)  y = Neg(t) }")
        model.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, ["N", 3]))
        assert not to_proto(load(model, {"x": (4, 3)})).graph.value_info
        assert len(to_proto(load(model)).graph.value_info) == 1

    @pytest.mark.parametrize(
        ("shapes", "reason"),
        [
            ({"nobody": (1,)}, "there is no input 'nobody'; the inputs are x, z"),
            ({"x": (4,)}, r"'x' is declared as \[N, 3\], which the shape \[4\] contradicts"),
            ({"x": (4, 2)}, "only symbolic dimensions can be set"),
            ({"x": (-1, 3)}, "cannot be given the shape"),
        ],
    )
    def test_impossible_shapes(self, shapes: dict[str, tuple[int, ...]], reason: str) -> None:
        with pytest.raises(ModelLoadError, match=reason):
            load(parsed(self.TEXT), shapes)
