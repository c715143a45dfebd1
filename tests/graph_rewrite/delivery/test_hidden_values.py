"""Outputs that are the same on all inputs are judged by the values before them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.runtime import Deployment
from tests.graph_rewrite.sample_models import parsed, weights
from tests.runtimes import every_provider

CPU = Deployment()
ZERO = np.array(0, np.float32)
BODY = "t = MatMul(x, w)  h = Relu(t)  m = MatMul(h, head)  y = Add(m, b)"


def compared(
    folder: Path,
    before: str,
    after: str,
    *tensors: onnx.TensorProto,
    outputs: str = "float[2,5] y",
    provider: str = "cpu",
) -> Equivalence:
    """Compare two bodies with weights of their own and a head of zeros."""
    head = numpy_helper.from_array(np.zeros((4, 5), np.float32), "head")
    paths = []
    for name, body in (("original", before), ("optimised", after)):
        model = parsed(
            f"(float[2,3] x) => ({outputs}) {{ {body} }}", weights("w", 3, 4), head, weights("b", 5), *tensors
        )
        paths.append(folder / f"{name}.onnx")
        onnx.save(model, paths[-1])
    return equivalent(*paths, Deployment(provider))


@every_provider
def test_a_right_rewrite_before_a_head_of_zeros_is_proved_by_the_values_between(tmp_path: Path, provider: str) -> None:
    zero = numpy_helper.from_array(np.float32(0), "zero")
    found = compared(tmp_path, BODY, BODY.replace("h = Relu(t)", "h = Max(t, zero)"), zero, provider=provider)
    assert found.ok
    assert found.vacuous == ()
    assert found.message.endswith("y is the same on all inputs; the values before it agree: h")


@every_provider
def test_a_wrong_rewrite_before_a_head_of_zeros_is_refused(tmp_path: Path, provider: str) -> None:
    found = compared(tmp_path, BODY, BODY.replace("Relu", "LeakyRelu"), provider=provider)
    assert not found.ok
    assert found.vacuous == ("y",)
    assert "the value 'h' before it differs by" in found.message


def test_a_rewritten_head_of_zeros_is_proved_by_the_last_value_that_changes(tmp_path: Path) -> None:
    found = compared(tmp_path, BODY, BODY.replace("m = MatMul(h, head)  y = Add(m, b)", "y = Gemm(h, head, b)"))
    assert found.ok
    assert "the values before it agree: h" in found.message


def test_a_value_of_another_name_and_shape_may_prove_it(tmp_path: Path) -> None:
    """Rewrites remove nodes that only reshape, and rename."""
    before = BODY.replace("h = Relu(t)", "g = Relu(t)  f = Flatten(g)  h = Identity(f)")
    after = BODY.replace("h = Relu(t)", "k = Max(t, zero)").replace("(h,", "(k,").replace("Add(m, b)", "Add(b, m)")
    zero = numpy_helper.from_array(np.float32(0), "zero")
    assert compared(tmp_path, before, after, zero).ok
    assert not compared(tmp_path, before, after.replace("Max(t, zero)", "LeakyRelu(t)"), zero).ok


@every_provider
def test_a_model_in_a_cache_of_links_finds_its_weights(tmp_path: Path, provider: str) -> None:
    """Hugging Face's cache: model and weights are links from a snapshot into a folder of blobs."""
    head = numpy_helper.from_array(np.zeros((4, 5), np.float32), "head")
    tensors = (weights("w", 3, 4), head, weights("b", 5))
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    text = f"(float[2,3] x) => (float[2,5] y) {{ {BODY} }}"
    path = snapshot / "m.onnx"
    onnx.save(parsed(text, *tensors), path, save_as_external_data=True, location="m.data", size_threshold=0)
    for file in sorted(snapshot.iterdir()):
        file.rename(blobs / f"blob of {file.name}")
        file.symlink_to(Path("..", "..", "blobs", f"blob of {file.name}"))
    other = parsed(text.replace("h = Relu(t)", "h = Max(t, zero)"), *tensors, numpy_helper.from_array(ZERO, "zero"))
    onnx.save(other, tmp_path / "optimised.onnx")
    found = equivalent(path, tmp_path / "optimised.onnx", Deployment(provider))
    assert found.ok, found.message
    assert found.message.endswith("the values before it agree: h")


def test_nothing_is_told_where_no_value_has_a_counterpart(tmp_path: Path) -> None:
    """The optimised head multiplies other weights with zeros, which are all that it leaves of the values between."""
    after = "m = MatMul(x, head2)  y = Add(m, b)"
    found = compared(tmp_path, BODY, after, numpy_helper.from_array(np.zeros((3, 5), np.float32), "head2"))
    assert not found.ok
    assert found.vacuous == ("y",)
    assert "no value before it that both models have" in found.message


def test_a_part_that_is_the_same_in_both_is_proved_by_the_values_before_it(tmp_path: Path) -> None:
    """The head is the same operator by operator; names between do not matter."""
    found = compared(tmp_path, BODY, BODY.replace("t = MatMul", "u = MatMul").replace("(t)", "(u)"))
    assert found.ok


@pytest.mark.parametrize(("operator", "ok"), [("Max(t, zero)", True), ("LeakyRelu(t)", False)])
def test_outputs_without_elements(tmp_path: Path, operator: str, ok: bool) -> None:
    before = "t = MatMul(x, w)  h = Relu(t)  y = Slice(h, none, none)"
    tensors = [numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(np.int64([0]), "none")]
    found = compared(tmp_path, before, before.replace("Relu(t)", operator), *tensors, outputs="float[0,4] y")
    assert found.ok is ok
    assert found.vacuous == (() if ok else ("y",))


def test_whole_numbers_behind_a_head_of_zeros_tell_as_little(tmp_path: Path) -> None:
    before = "t = MatMul(x, w)  h = Relu(t)  m = MatMul(h, head)  y = ArgMax(m)"
    found = compared(tmp_path, before, before.replace("Relu", "LeakyRelu"), outputs="int64[1,5] y")
    assert found.vacuous == ("y",)


def test_outputs_that_depend_on_shapes_alone_are_proved_by_being_equal(tmp_path: Path) -> None:
    before = "t = MatMul(x, w)  h = Relu(t)  y = Shape(h)"
    found = compared(
        tmp_path, before, before.replace("h = Relu(t)  y = Shape(h)", "y = Shape(t)"), outputs="int64[2] y"
    )
    assert found.ok


def test_a_part_of_the_outputs_is_enough_to_refuse(tmp_path: Path) -> None:
    """One output changes from input to input and agrees, and the other hides a wrong rewrite."""
    before = BODY + "  z = Neg(t)"
    found = compared(tmp_path, before, before.replace("Relu", "LeakyRelu"), outputs="float[2,5] y, float[2,4] z")
    assert found.vacuous == ("y",)
    assert not found.ok


def test_weights_beside_the_models_are_found(tmp_path: Path) -> None:
    paths = []
    for name, operator in (("original", "Relu"), ("optimised", "LeakyRelu")):
        text = f"(float[2,3] x) => (float[2,4] y) {{ t = MatMul(x, w)  h = {operator}(t)  y = Sub(h, h) }}"
        paths.append(tmp_path / name / "model.onnx")
        paths[-1].parent.mkdir()
        onnx.save(parsed(text, weights("w", 3, 4)), paths[-1], save_as_external_data=True, size_threshold=0)
    found = equivalent(*paths, CPU)
    assert found.vacuous == ("y",)
    assert "the value 'h' before it differs by" in found.message


@every_provider
def test_inner_values_of_models_with_external_weights_are_read(tmp_path: Path, provider: str) -> None:
    """The copies with more outputs lie elsewhere than the weights."""
    files = []
    for name, relu in (("original", "Relu"), ("right", "Max"), ("wrong", "LeakyRelu")):
        body = BODY.replace("h = Relu(t)", f"h = {relu}(t, zero)" if relu == "Max" else f"h = {relu}(t)")
        tensors = [weights("w", 3, 4), numpy_helper.from_array(np.zeros((4, 5), np.float32), "head"), weights("b", 5)]
        zero = numpy_helper.from_array(np.float32(0), "zero")
        (tmp_path / name).mkdir()
        files.append(tmp_path / name / "model.onnx")
        model = parsed(f"(float[2,3] x) => (float[2,5] y) {{ {body} }}", *tensors, zero)
        onnx.save(model, files[-1], save_as_external_data=True, location="model.data", size_threshold=0)
    original, right, wrong = files
    assert equivalent(original, right, Deployment(provider)).message.endswith("the values before it agree: h")
    assert "the value 'h' before it differs by" in equivalent(original, wrong, Deployment(provider)).message
