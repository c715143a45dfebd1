"""Loading and saving: nothing is lost, results stay the same bit by bit, and what cannot be read is said clearly."""

from __future__ import annotations

import glob
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite import Rewriter, Rule, load, save
from graph_rewrite.onnx_files.saving import materialize, to_proto
from graph_rewrite.symbolic.inputs import symbolic_inputs
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.sample_models import feeds, parsed, weights
from tests.invariants import assert_well_formed


def run(model: onnx.ModelProto | Path, inputs: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    source = os.fspath(model) if isinstance(model, Path) else model.SerializeToString()
    found: list[Any] = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(
        None, inputs
    )
    return found


def bits(value: Any) -> Any:
    """Something equal for values that are the same bit by bit."""
    if isinstance(value, list):
        return [bits(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype != np.object_:
        return value.dtype, value.shape, value.tobytes()
    return value.tolist() if isinstance(value, np.ndarray) else value


def content(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString(deterministic=True)
    return data


class TestLossless:
    @pytest.mark.parametrize("build", [*sample_models.RUNNABLE, sample_models.custom], ids=lambda build: build.__name__)
    def test_an_unmodified_graph_is_saved_as_the_very_same_model(self, build: Callable[[], onnx.ModelProto]) -> None:
        model = build()
        before = content(model)
        graph = load(model)
        assert_well_formed(graph)
        again = to_proto(graph)
        assert content(again) == before
        assert content(model) == before, "load changed the model it was given"
        assert load(again).hash == graph.hash

    @pytest.mark.parametrize("build", sample_models.RUNNABLE, ids=lambda build: build.__name__)
    def test_files_give_the_same_outputs_bit_by_bit(
        self, build: Callable[[], onnx.ModelProto], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = build()
        expected = bits(run(model, feeds(model)))
        inline = save(load(model), tmp_path / "inline.onnx")
        monkeypatch.setattr("graph_rewrite.onnx_files.saving.INLINE_TOTAL", 0)
        monkeypatch.setattr("graph_rewrite.onnx_files.saving.SMALLEST_EXTERNAL", 1)
        external = save(load(inline), tmp_path / "external.onnx")
        for path in (inline, external, materialize(load(external), tmp_path / "workspace")):
            assert bits(run(path, feeds(model))) == expected, path

    def test_overridable_initializers_stay_overridable(self, tmp_path: Path) -> None:
        model = sample_models.overridable()
        graph = load(model)
        assert len(graph.stored) == 1
        assert len(graph.constants) == 1
        path = save(graph, tmp_path / "m.onnx")
        inputs = feeds(model) | {"w": np.ones((3, 4), np.float32)}
        assert bits(run(path, inputs)) == bits(run(model, inputs))
        assert bits(run(path, inputs)) != bits(run(path, feeds(model)))

    def test_values_that_subgraphs_read_are_inputs_of_their_node(self) -> None:
        graph = load(sample_models.conditional())
        branch = next(node for node in graph.nodes.values() if node.op == "If")
        assert branch.opaque
        assert branch.captures == ("t", "w", "c", "x")
        assert [graph.names[value] for value in branch.inputs if value is not None] == ["c", "t", "w", "c", "x"]

    def test_types_come_from_inference_and_else_from_what_is_declared(self) -> None:
        graph = load(sample_models.conditional())
        types = {graph.names[value]: str(type) for value, type in graph.types.items() if value in graph.names}
        assert types["t"] == "float[2]"
        assert types["y"] == "float[2]"
        assert types["s"] == "None"
        declared = sample_models.conditional()
        declared.graph.value_info.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [2]))
        graph = load(declared)
        assert str(graph.types[next(v for v, name in graph.names.items() if name == "s")]) == "float[2]"

    def test_wrong_value_info_is_not_believed(self) -> None:
        model = parsed("(float[2,3] x) => (float[2,3] y) { t = Relu(x)  y = Neg(t) }")
        model.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [7]))
        graph = load(model)
        assert {str(type) for type in graph.types.values()} == {"float[2,3]"}


def backend_cases() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """onnx's own tests of operators, and the small models that come with them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        for case in collect_testcases(None)[::3]:
            yield case.name, case.model, _named(case.model, case.data_sets[0][0])
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in sorted(glob.glob(str(data / "simple" / "*")) + glob.glob(str(data / "pytorch-*" / "*"))[::3]):
        model = onnx.load(f"{folder}/model.onnx")
        if any(info.type.HasField("sequence_type") for info in model.graph.input):
            continue
        count = len(glob.glob(f"{folder}/test_data_set_0/input_*.pb"))
        files = [Path(folder, "test_data_set_0", f"input_{i}.pb") for i in range(count)]
        arrays = [numpy_helper.to_array(TensorProto.FromString(file.read_bytes())) for file in files]
        yield Path(folder).name, model, _named(model, arrays)


def _named(model: onnx.ModelProto, arrays: list[Any]) -> dict[str, Any]:
    stored = {tensor.name for tensor in model.graph.initializer}
    return dict(zip([info.name for info in model.graph.input if info.name not in stored], arrays, strict=False))


def test_a_broad_sample_of_operators_survives_load_and_save() -> None:
    tried = ran = 0
    for name, model, inputs in backend_cases():
        again = to_proto(load(model))
        assert content(again) == content(model), name
        tried += 1
        if "random" in name or "bernoulli" in name:
            continue
        try:
            expected = bits(run(model, inputs))
        except Exception:  # an operator that this version of ONNX Runtime lacks
            continue
        assert bits(run(again, inputs)) == expected, name
        ran += 1
    assert tried > 500
    assert ran > 300


class TestExternalData:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        """A model with its weights beside it."""
        model = parsed(
            "(float[2,300] x) => (float[2,300] y) { t = MatMul(x, w)  y = Add(t, b) }",
            weights("w", 300, 300),
            weights("b", 300),
        )
        onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        return tmp_path / "m.onnx"

    def test_weights_are_mapped_and_written(self, model: Path, tmp_path: Path) -> None:
        inputs = feeds(onnx.load(model))
        expected = bits(run(model, inputs))
        (tmp_path / "elsewhere").mkdir()
        saved = save(load(model), tmp_path / "elsewhere" / "n.onnx")
        assert [file.name for file in saved.parent.iterdir()] == ["n.onnx"], "small models are one file"
        assert bits(run(saved, inputs)) == expected

    def test_the_digest_is_that_of_the_content(self, model: Path) -> None:
        assert load(model).hash == load(onnx.load(model)).hash

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, makes a sparse file")
    def test_more_than_two_gigabytes_are_not_read(self, tmp_path: Path) -> None:
        rows = 550_000_000
        with (tmp_path / "big.data").open("wb") as stream:
            stream.truncate(rows * 4)
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[rows], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="big.data")
        model = parsed("(int64[1] i) => (float[1] y) { y = Gather(w, i) }")
        model.graph.initializer.append(tensor)
        onnx.save(model, tmp_path / "big.onnx")
        before = _resident()
        graph = load(tmp_path / "big.onnx")
        assert [str(graph.types[value]) for value in graph.outputs] == ["float[1]"]
        assert _resident() - before < 50e6

    def test_saving_a_model_over_itself(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inputs = feeds(onnx.load(model))
        expected = bits(run(model, inputs))
        monkeypatch.setattr("graph_rewrite.onnx_files.saving.INLINE_TOTAL", 0)
        original = load(model)
        for data in ("m.onnx.data", "m.onnx.1.data", "m.onnx.data"):
            save(load(model), model)
            assert sorted(file.name for file in model.parent.iterdir()) == ["m.data", "m.onnx", data]
            assert bits(run(model, inputs)) == expected
        assert load(model).hash == original.hash, "what was loaded before must not see the new file"
        (other := model.with_name("other.onnx")).write_bytes(model.read_bytes())
        save(load(model), model)
        assert bits(run(other, inputs)) == expected, "weights that another model reads stay"

    def test_a_failed_save_leaves_the_old_model(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inputs = feeds(onnx.load(model))
        expected, files = bits(run(model, inputs)), sorted(model.parent.iterdir())

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save(load(model), model)
        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            materialize(load(model), model.parent / "workspace")
        assert sorted(file for file in model.parent.iterdir() if file.name != "workspace") == files
        assert not list((model.parent / "workspace" / "weights").iterdir())
        assert bits(run(model, inputs)) == expected

    def test_candidates_share_weights_by_content(self, model: Path, tmp_path: Path) -> None:
        graph = load(model)
        other = graph.with_disabled_optimizers({"MatMulAddFusion"})
        workspace = tmp_path / "workspace"
        paths = {materialize(graph, workspace), materialize(other, workspace), materialize(load(model), workspace)}
        assert len(paths) == 2
        assert len(list((workspace / "weights").iterdir())) == 1, "the small bias is in the model file"

    def test_external_data_inside_a_branch_is_read_at_once(self, tmp_path: Path) -> None:
        model = sample_models.conditional()
        inner = model.graph.node[1].attribute[0].g.initializer.add()
        inner.CopyFrom(TensorProto(name="k", data_type=TensorProto.FLOAT, dims=[2], data_location=1))
        inner.external_data.add(key="location", value="k.data")
        (tmp_path / "k.data").write_bytes(np.array([1.5, 2.5], np.float32).tobytes())
        onnx.save(model, tmp_path / "m.onnx")
        (tmp_path / "other").mkdir()
        saved = onnx.load(save(load(tmp_path / "m.onnx"), tmp_path / "other" / "m.onnx"))
        found = saved.graph.node[1].attribute[0].g.initializer[0]
        assert numpy_helper.to_array(found).tolist() == [1.5, 2.5]


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class ReluTwice(Rule):
    """Relu(x) = Relu(Relu(x))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Relu(op.Identity(op.Relu(x)))


class TestNames:
    def test_inserted_nodes_and_values_get_fresh_names(self, tmp_path: Path) -> None:
        """Also in a model that was written by us, and beside names inside of subgraphs."""
        model = sample_models.conditional()
        branch = model.graph.node[1].attribute[0].g
        branch.node[0].output[0] = branch.node[1].input[0] = "rewritten_10"
        model.graph.node[0].name = "rewritten_11"
        graph = load(model)
        for _ in range(3):
            graph = Rewriter([ReluTwice()], "site", deployment=False).candidates(graph)[-1].apply()
            path = save(graph, tmp_path / "m.onnx")
            onnx.checker.check_model(path, full_check=True)
            saved = onnx.load(path).graph
            names = [node.name for node in saved.node if node.name]
            values = [name for node in saved.node for name in node.output] + ["rewritten_10"]
            assert len(names) == len(set(names))
            assert len(values) == len(set(values))
            assert bits(run(path, feeds(model))) == bits(run(model, feeds(model)))
            graph = load(path)

    def test_metadata_is_added_and_replaced(self) -> None:
        model = to_proto(load(sample_models.documented()), metadata={"author": "another", "new": "entry"})
        assert {entry.key: entry.value for entry in model.metadata_props} == {"author": "another", "new": "entry"}


def test_a_size_of_minus_one_is_symbolic() -> None:
    """As exporters of other frameworks write it, and as ONNX Runtime reads it."""
    model = parsed("(float[1,8] x, bool c) => (float[1,8] y) { y = If(c) <then_branch = yes() => (float[1,8] a)"
                   " { a = Relu(x) }, else_branch = no() => (float[1,8] b) { b = Neg(x) }> }")  # fmt: skip
    branches = [attribute.g for attribute in model.graph.node[0].attribute]
    for value in (model.graph.input[0], *model.graph.output, *(branch.output[0] for branch in branches)):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    before = content(model)
    graph = load(model)
    assert graph.types[graph.inputs[0]] is None
    assert content(model) == before
    assert symbolic_inputs(graph).shapes({"x.0": 3}) == {"x": (3, 8)}
    fixed = load(model, {"x": (3, 8)})
    assert str(fixed.types[fixed.inputs[0]]) == "float[3,8]"
    x = np.ones((3, 8), np.float32)
    assert run(to_proto(graph), {"x": x, "c": np.array(True)})[0].shape == (3, 8)
