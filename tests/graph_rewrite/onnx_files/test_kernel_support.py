"""A model is raised to a newer operator set only as far as ONNX Runtime can run it there."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from graph_rewrite import load
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files import kernel_support
from graph_rewrite.onnx_files.normalisation import INTERNAL_OPSET, normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.runtime.opening import first_that_opens
from tests.graph_rewrite import custom_ops
from tests.graph_rewrite.sample_models import parsed

FLOAT = {
    "RoiAlign": "y = RoiAlign<output_height = 2, output_width = 2>(i, rois, batch)",
    "MaxRoiPool": "y = MaxRoiPool<pooled_shape = [2, 2]>(i, boxes)",
    "GlobalLpPool": "y = GlobalLpPool(i)",
    "RandomNormal": "r = RandomNormal<shape = [4, 4], seed = 1.0>()  y = Add(t, r)",
    "RandomNormalLike": "r = RandomNormalLike<seed = 1.0>(t)  y = Add(t, r)",
    "RandomUniform": "r = RandomUniform<shape = [4, 4], seed = 1.0>()  y = Add(t, r)",
    "RandomUniformLike": "r = RandomUniformLike<seed = 1.0>(t)  y = Add(t, r)",
    "Multinomial": "y = Multinomial<sample_size = 3, seed = 1.0>(t)",
    "Bernoulli": "p = Sigmoid(t)  y = Bernoulli<seed = 1.0>(p)",
}
DOUBLE = [
    "Elu", "LeakyRelu", "Selu", "Softplus", "Softsign", "Mish", "HardSigmoid", "HardSwish", "ThresholdedRelu",
]  # fmt: skip
USUAL = ["Relu", "Sigmoid", "Softmax", "Gelu", "LeakyRelu", "Elu", "Identity"]

OPERANDS = {
    "image": np.array([1, 1, 4, 4]),
    "rois": np.array([[0, 0, 3, 3]], np.float32),
    "boxes": np.array([[0, 0, 0, 3, 3]], np.float32),
    "batch": np.array([0]),
}


def chain(tail: str, dtype: type[np.floating] = np.float32, opset: int = 18, output: str | None = None) -> Graph:
    """A chain of two products by constants, which one product can replace, and an operator behind it."""
    rng = np.random.default_rng(0)
    name = {np.float32: "float", np.float64: "double", np.float16: "float16"}[dtype]
    tail = f"i = Reshape(t, image)  {tail}" if "(i" in tail else tail
    arrays = {weight: rng.normal(size=(4, 4)).astype(dtype) for weight in "vw"}
    arrays |= {operand: array for operand, array in OPERANDS.items() if operand in tail}
    text = f"({name}[4,4] x) => ({output or name} y) {{ s = MatMul(x, v)  t = MatMul(s, w)  {tail} }}"
    return load(parsed(text, *(numpy_helper.from_array(array, name) for name, array in arrays.items()), opset=opset))


def run(graph: Graph, x: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(to_proto(graph).SerializeToString(), options).run(None, {"x": x})


def assert_candidates_run(graph: Graph, dtype: type[np.floating]) -> None:
    """Check that the normalised graph and each graph one rewrite away open and give what the original gives."""
    x = np.random.default_rng(1).normal(size=(4, 4)).astype(dtype)
    expected = run(graph, x)
    normal, _ = normalise(graph)
    candidates = Rewriter(rule_set("default"), "site").candidates(normal)
    assert "AssociateMatMulRight" in {candidate.rule for candidate in candidates}
    for rewritten in (normal, *(candidate.apply() for candidate in candidates)):
        for found, wanted in zip(run(rewritten, x), expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


class TestOperatorsThatLackNewKernels:
    @pytest.mark.parametrize("operator", sorted(FLOAT))
    def test_single_precision(self, operator: str) -> None:
        graph = chain(FLOAT[operator], output="int32" if operator == "Multinomial" else None)
        normal, report = normalise(graph)
        assert graph.opset < normal.opset < INTERNAL_OPSET
        assert f"is raised to opset {normal.opset}: ONNX Runtime cannot run" in str(report)
        assert_candidates_run(graph, np.float32)

    @pytest.mark.parametrize("operator", DOUBLE)
    def test_double_precision(self, operator: str) -> None:
        assert_candidates_run(chain(f"y = {operator}(t)", np.float64), np.float64)

    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    @pytest.mark.parametrize("operator", USUAL)
    def test_others_reach_the_newest_operator_set(self, operator: str, dtype: type[np.floating]) -> None:
        graph = chain(f"y = {operator}(t)", dtype, opset=20)
        assert normalise(graph)[0].opset == INTERNAL_OPSET

    def test_behind_an_operator_of_a_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel_support, "_RUNNING", {})  # another model has the same doubtful operator
        library = (custom_ops.library(),)
        tail = "j = ai.onnx.contrib.Inverse(t)  i = Reshape(j, image)  y = GlobalLpPool(i)"
        text = f"(float[4,4] x) => (float[1,1,1,1] y) {{ t = Transpose<perm = [1, 0]>(x)  {tail} }}"
        model = parsed(text, numpy_helper.from_array(OPERANDS["image"], "image"), opset=18)
        model.opset_import.add(domain=custom_ops.DOMAIN, version=1)
        model.graph.value_info.append(onnx.helper.make_tensor_value_info("j", onnx.TensorProto.FLOAT, [4, 4]))
        graph = load(model)
        assert normalise(graph)[0].opset == 18  # without the library ONNX Runtime runs none of its forms
        assert normalise(graph, libraries=library)[0].opset == 21

    @pytest.fixture
    def unopened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise AssertionError("the list of kernels leaves no doubt")

        monkeypatch.setattr(kernel_support, "first_that_opens", fail)

    @pytest.mark.usefixtures("unopened")
    def test_usual_models_are_not_opened(self) -> None:
        for operator in USUAL:
            for dtype in (np.float32, np.float16):
                normalise(chain(f"y = {operator}(t)", dtype, opset=20))

    def test_without_a_list_of_kernels_graphs_are_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel_support, "cpu_kernels", lambda: None)
        monkeypatch.setattr(kernel_support, "_RUNNING", {})
        assert normalise(chain("y = Relu(t)", opset=20))[0].opset == INTERNAL_OPSET
        assert normalise(chain("y = GlobalLpPool(i)", opset=20))[0].opset == 21

    def test_inside_subgraphs(self) -> None:
        body = "(float[1,1,1,1] z) {{ z = GlobalLpPool({0}) }}"
        tail = f"y = If<then_branch = a () => {body.format('i')}, else_branch = b () => {body.format('j')}>(c)"
        text = f"(bool c, float[1,1,4,4] i) => (float[1,1,1,1] y) {{ j = Neg(i)  {tail} }}"
        normal, report = normalise(load(parsed(text.replace("{{", "{").replace("}}", "}"), opset=20)))
        assert normal.opset == 21, report


class TestTarget:
    def test_a_graph_is_raised_to_the_target(self) -> None:
        assert [normalise(chain("y = Relu(t)"), opset)[0].opset for opset in (18, 20, 22, 23)] == [18, 20, 22, 23]
        assert normalise(chain("y = GlobalLpPool(i)"), 20)[0].opset == 20

    def test_an_operator_set_that_onnx_runtime_does_not_know(self) -> None:
        newest = onnx.defs.onnx_opset_version()
        graph, _ = normalise(chain("y = Relu(t)"), newest)
        run(graph, np.ones((4, 4), np.float32))

    @pytest.mark.parametrize(
        ("target", "reason"), [(17, "is in opset 18 and cannot be converted down to 17"), (99, "opset 99 is unknown")]
    )
    def test_impossible_targets(self, target: int, reason: str) -> None:
        with pytest.raises(UserError, match=reason):
            normalise(chain("y = Relu(t)"), target)


def test_the_first_model_that_opens() -> None:
    good, bad = (parsed(f"(float[2] x) => (float[2] y) {{ y = {op}(x) }}") for op in ("Relu", "NoSuchOperator"))
    models = [model.SerializeToString() for model in (bad, good, good)]
    assert first_that_opens(models) == 1
    assert first_that_opens(models[:1]) is None
    assert first_that_opens([]) is None
