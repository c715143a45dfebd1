"""Values over the prime field, against the verifier's own semantics of the ONNX operators that programs become."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.mutate import field
from graph_rewrite.mutate.field import outputs_of, random_inputs, values_of
from graph_rewrite.mutate.onnx_form import as_graph
from graph_rewrite.mutate.program import TensorProgram, program, step
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.soundness.domains.interpretation import Interpretation
from graph_rewrite.soundness.domains.prime_field import PrimeField
from graph_rewrite.soundness.semantics.call import Tensor
from graph_rewrite.soundness.semantics.evaluation import Evaluator
from tests.graph_rewrite.mutate.programs import conv, random_program
from tests.graph_rewrite.mutate.proof_speed import counted_products


def by_the_verifier(made: TensorProgram, inputs: list[np.ndarray]) -> list[np.ndarray]:
    graph = as_graph(made, [array.shape for array in inputs])
    evaluator = Evaluator(PrimeField(), Interpretation(True))
    tensors = {f"x{i}": Tensor(array, onnx.TensorProto.FLOAT) for i, array in enumerate(inputs)}
    return [tensor.array for tensor in evaluator.outputs(graph, tensors)]


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_values_are_those_of_the_onnx_operators(seed: int) -> None:
    made, shapes = random_program(np.random.default_rng(seed))
    inputs = random_inputs(shapes, seed)
    for mine, theirs in zip(outputs_of(made, inputs), by_the_verifier(made, inputs), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("made", "shapes"),
    [
        (program(3, [conv(0, 1, 2)]), [(2, 4, 5, 6), (6, 2, 3, 3), (6,)]),
        (program(2, [conv(0, 1, rank=1)]), [(2, 3, 7), (2, 3, 3)]),
        (program(2, [conv(0, 1, rank=3, stride=2)]), [(1, 2, 4, 5, 6), (3, 2, 3, 3, 3)]),
        (program(2, [step("matmul", 0, 1)]), [(2, 1, 3, 4), (5, 4, 2)]),
        (program(2, [step("fit", 0, 1)]), [(2, 3), (4, 3)]),
        (program(1, [step("averaging", 0, kernel=(3, 3)), conv(0, 1)]), [(1, 4, 6, 6)]),
        (program(1, [step("diagonal", 0, count=3, source=0, target=1)]), [(6, 2, 2)]),
        (program(1, [step("diagonal", 0, count=3, source=1, target=0)]), [(2, 6, 2)]),
    ],
)
def test_operators(made: TensorProgram, shapes: list[tuple[int, ...]]) -> None:
    inputs = random_inputs(shapes, 3)
    np.testing.assert_array_equal(outputs_of(made, inputs)[0], by_the_verifier(made, inputs)[0])


@pytest.mark.parametrize(
    ("chunk", "products"),
    [(2**21, 1), (4000, 3), (2000, 5), (500, 25), (200, 45)],
    ids=["all images", "two images", "one image", "two rows", "one row"],
)
def test_convolutions_in_chunks_are_the_same(chunk: int, products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image has 9 by 8 windows of 27 elements. Small images are multiplied together."""
    inputs = random_inputs([(5, 3, 9, 8), (4, 3, 3, 3)], 0)
    each = [values_of(program(2, [conv(0, 1)]), [image[None], inputs[1]])[-1] for image in inputs[0]]
    monkeypatch.setattr(field, "_CHUNK", chunk)
    with counted_products() as counted:
        np.testing.assert_array_equal(values_of(program(2, [conv(0, 1)]), inputs)[-1], np.concatenate(each))
    assert len(counted) == 3 * products


def test_the_onnx_form_computes_the_same_in_floating_point() -> None:
    made = program(1, [step("pool", 0, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, counted=1)])
    other = program(1, [step("averaging", 0, kernel=(3, 3)), conv(0, 1)])
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)
    a, b = (run_graph(as_graph(each, [x.shape]), {"x0": x})[0] for each in (made, other))
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
