"""Refusals of unreadable models name the file, the fault and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from graph_rewrite import ModelLoadError, load, save
from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.rules import Rewriter, rule_set
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

    @pytest.mark.parametrize("name", ["bert-tiny", "zoo://bert-tiny", "zoo:bert-tiny?layers=1", "swin-t"])
    def test_a_model_of_the_zoo_is_no_file(self, name: str) -> None:
        known = "swin-t" if name == "swin-t" else "bert-tiny"
        with pytest.raises(ModelLoadError, match=rf"no such file; `rewritegym zoo {known}` writes that model"):
            load(name)

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

    def cached(self, external: Path, repository: Path, target: str = "blobs") -> Path:
        """Lay out a model as the Hugging Face cache does, with its files linked into `target`."""
        snapshot = repository / "snapshots" / "rev" / "onnx"
        for folder in (snapshot, repository / "blobs", repository / target):
            folder.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(("m.onnx", "w.data")):
            blob = external.with_name(name).rename(repository / target / f"sha{number}")
            (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
        return snapshot / "m.onnx"

    def test_the_links_of_a_hugging_face_cache(self, external: Path, tmp_path: Path) -> None:
        expected = load(external).hash
        graph = load(self.cached(external, tmp_path / "models--a--b"))
        assert graph.hash == expected
        assert load(save(graph, tmp_path / "copy.onnx")).hash == expected

    @pytest.mark.parametrize("target", ["elsewhere", "../outside", "../models--c--d/blobs"])
    def test_links_to_other_places_in_such_a_cache(self, external: Path, tmp_path: Path, target: str) -> None:
        with pytest.raises(ModelLoadError, match=r"outside the model's folder.*cp -L"):
            load(self.cached(external, tmp_path / "models--a--b", target))

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
            (TensorProto(name="w", data_type=1, dims=[8], raw_data=bytes(33)), "more bytes than .*33 instead of 32"),
            (TensorProto(name="w", data_type=1, dims=[8], raw_data=bytes(32000)), "more bytes than .*32000 instead"),
            (TensorProto(name="w", data_type=1, dims=[8], float_data=[1.0] * 9), "holds 9 numbers, .* needs 8"),
            (TensorProto(name="w", data_type=3, dims=[8], float_data=[1.0] * 8), "holds 0 numbers"),
            (TensorProto(name="w", data_type=1, dims=[2**40, 2**62]), "too large for any machine"),
            (TensorProto(name="w", data_type=1, dims=[0, 2**62]), "too large for any machine"),
            (TensorProto(name="w", data_type=8, dims=[1], raw_data=b"x"), "strings as bytes"),
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


class TestHostile:
    def test_absurd_declarations(self) -> None:
        model = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62
        with pytest.raises(ModelLoadError, match=r"'x' has the shape \[4611686018427387904\], too large"):
            load(model)

    def test_absurd_results(self) -> None:
        text = "(float[2,2] x) => (float[n,m] y) <int64[2] r = {1099511627776, 1099511627776}> { y = Tile(x, r) }"
        with pytest.raises(ModelLoadError, match="of Tile is too large for any machine"):
            load(parsed(text))

    @pytest.mark.parametrize(
        ("node", "reason"),
        [
            ("y = Relu<group = 1>(x)", "Unrecognized attribute: group"),
            ("y = Conv<group = 1.5>(x, x)", "Mismatched attribute type"),
            ("y = Relu(x, x)", "input size 2"),
            ("y = MaxPool(x)", "Required attribute 'kernel_shape' is missing"),
            ("y = Constant()", "0 attributes instead of a value"),
        ],
    )
    def test_operators_that_break_their_schema(self, node: str, reason: str) -> None:
        with pytest.raises(ModelLoadError, match=f"gives 'y'.*{reason}"):
            load(parsed(f"(float[1,2,4,4] x) => (float[1,2,4,4] y) {{ {node} }}"))

    @pytest.mark.parametrize(
        "text",
        [
            "t = Reshape(x, to)  u = Reshape(t, flat)  y = Relu(u)",
            "t = Conv<kernel_shape = [1]>(x, flat)  y = Relu(t)",
            "t = Transpose<perm = [0, 7]>(x)  u = Transpose<perm = [1, 0]>(t)  y = Relu(u)",
            "s, t = Split<axis = 1, num_outputs = 2147483647>(x)  y = Concat<axis = 1>(s, t)",
            "s, t = Split<axis = 1, num_outputs = 1>(x)  y = Concat<axis = 1>(s, t)",
            "t = Slice(x, flat, to)  y = Concat<axis = 0>(t, t)",
        ],
    )
    def test_no_rule_touches_operators_that_cannot_take_their_operands(self, text: str) -> None:
        model = parsed(
            f"(float[2,3] x) => (float[2,3] y) <int64[2] to = {{5, 5}}, int64[1] flat = {{7}}> {{ {text} }}", opset=18
        )
        for name in "stu":
            model.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 2]))
        normal, _ = normalise(load(model))
        for candidate in Rewriter(rule_set("default")).candidates(normal):
            candidate.apply()

    def test_a_name_that_is_no_text(self) -> None:
        data = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }").SerializeToString()
        with pytest.raises(ModelLoadError, match="not valid UTF-8"):
            load(onnx.ModelProto.FromString(data.replace(b"Relu", b"Rel\xff")))

    @pytest.mark.parametrize("version", [0, -1, 2**40])
    def test_impossible_operator_sets(self, version: int) -> None:
        model = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")
        model.opset_import[0].version = version
        with pytest.raises(ModelLoadError, match=f"imports version {version} of 'ai.onnx'"):
            load(model)

    def test_a_device_is_not_read(self) -> None:
        with pytest.raises(ModelLoadError, match="is no file"):
            load("/dev/zero")


def test_saving_creates_no_folders(tmp_path: Path) -> None:
    graph = load(parsed("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    with pytest.raises(UserError, match=f"there is no folder {tmp_path}/nope; create it first"):
        save(graph, tmp_path / "nope" / "m.onnx")
    assert not list(tmp_path.iterdir())


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
