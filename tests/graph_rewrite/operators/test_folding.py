"""Constants: identified by content, folded once, moved without being read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from graph_rewrite.ir.constants import EAGER_SIZE, Constant, chunks, from_array, nbytes, tensor_proto
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.folding import evaluate_constant, fold

OPSET = 23
RNG = np.random.default_rng(0)


def large(*shape: int) -> Constant:
    """More elements than are evaluated at once."""
    constant = from_array(RNG.standard_normal(shape).astype(np.float32))
    assert not constant.is_small
    return constant


def apply(op: str, inputs: list[Constant | None], *shapes: tuple[int, ...], **attrs: Any) -> tuple[Constant, ...]:
    dtype = next(constant.type.dtype for constant in inputs if constant is not None)
    return fold(op, "", attrs, inputs, [TensorType(dtype, shape) for shape in shapes], OPSET)


def ints(*values: int) -> Constant:
    return from_array(np.array(values, dtype=np.int64))


class TestContent:
    def test_equal_contents_are_one(self) -> None:
        a, b = from_array(np.arange(3)), from_array(np.arange(3))
        assert a.digest == b.digest
        assert a.digest != from_array(np.arange(3, dtype=np.int32)).digest
        assert a.digest != from_array(np.arange(3).reshape(1, 3)).digest
        assert from_array(np.array(0.0)).digest != from_array(np.array(-0.0)).digest

    def test_strings_by_their_bytes(self) -> None:
        as_text, as_bytes = np.array(["a", "é"], dtype=object), np.array([b"a", "é".encode()], dtype=object)
        assert from_array(as_text).digest == from_array(as_bytes).digest
        assert nbytes(from_array(as_text)) == 0
        assert list(tensor_proto(from_array(as_text)).string_data) == [b"a", "é".encode()]

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.bool_, np.complex64, ">f4"])
    def test_bytes_are_those_of_onnx(self, dtype: Any) -> None:
        array = np.arange(6).reshape(2, 3).T.astype(dtype)
        constant = from_array(array.astype(np.dtype(dtype).newbyteorder("=")))
        data = b"".join(chunks(constant))
        assert len(data) == nbytes(constant)
        assert data == np.ascontiguousarray(array).astype(np.dtype(dtype).newbyteorder("<")).tobytes()

    def test_scalars_and_nothing(self) -> None:
        assert nbytes(from_array(np.float32(1))) == 4
        assert b"".join(chunks(from_array(np.zeros((2, 0), np.float32)))) == b""


class TestFold:
    def test_small_results_are_known_by_content(self) -> None:
        a, b = from_array(np.float32([1, 2])), from_array(np.float32([3, 4]))
        (found,) = apply("Add", [a, b], (2,))
        assert found.numpy().tolist() == [4, 6]
        assert found.digest == from_array(np.float32([4, 6])).digest

    def test_large_results_are_computed_when_needed_and_once(self) -> None:
        a, b = large(EAGER_SIZE + 1), large(EAGER_SIZE + 1)
        (found,) = apply("Add", [a, b], (EAGER_SIZE + 1,))
        assert found.expression is not None
        assert apply("Add", [a, b], (EAGER_SIZE + 1,))[0] is found
        assert apply("Add", [b, a], (EAGER_SIZE + 1,))[0] is not found
        np.testing.assert_array_equal(found.numpy(), a.numpy() + b.numpy())
        assert found.numpy() is found.numpy()

    def test_several_outputs(self) -> None:
        w = large(6, 2000)
        parts = apply("Split", [w], (2, 2000), (2, 2000), (2, 2000), axis=0, num_outputs=3)
        for i, part in enumerate(parts):
            np.testing.assert_array_equal(part.numpy(), w.numpy()[2 * i : 2 * i + 2])
        assert len({part.digest for part in parts}) == 3
        halves = apply("Split", [w], (3, 2000), (3, 2000), axis=0, num_outputs=2)
        assert halves[0].digest not in {part.digest for part in parts}

    def test_the_operator_set_is_part_of_the_identity(self) -> None:
        w = large(2, 3, 2000)
        old, new = (fold("Softmax", "", {"axis": 1}, [w], [w.type], opset)[0] for opset in (11, 13))
        assert old.digest != new.digest
        assert not np.allclose(old.numpy(), new.numpy())

    def test_wrong_shapes_are_found_out(self) -> None:
        (found,) = apply("Add", [large(EAGER_SIZE + 1), from_array(np.float32(1))], (7, 7000))
        with pytest.raises(ValueError, match="gave shape"):
            found.numpy()
        with pytest.raises(ValueError, match="not an expression"):
            evaluate_constant(from_array(np.float32(1)))

    def test_an_unknown_operator_is_said(self) -> None:
        type = TensorType(TensorProto.FLOAT, (5000,))
        (found,) = fold("NoSuchThing", "com.microsoft", {}, [large(5000)], [type], 1)
        with pytest.raises(NotImplementedError, match="NoSuchThing"):
            found.numpy()


class TestMoves:
    """A rewrite and its inverse give the constant they started from."""

    def test_transposes_compose(self) -> None:
        w = large(4, 50, 60)
        (once,) = apply("Transpose", [w], (60, 4, 50), perm=(2, 0, 1))
        (twice,) = apply("Transpose", [once], (50, 60, 4), perm=(2, 0, 1))
        assert apply("Transpose", [twice], (4, 50, 60), perm=(2, 0, 1))[0] is w
        np.testing.assert_array_equal(twice.numpy(), w.numpy().transpose(1, 2, 0))
        assert twice.expression is not None
        assert twice.expression.inputs[0] is w
        (backwards,) = apply("Transpose", [w], (60, 50, 4))
        assert apply("Transpose", [backwards], (4, 50, 60))[0] is w

    def test_reshapes_compose(self) -> None:
        w = large(4, 50, 60)
        (flat,) = apply("Reshape", [w, ints(-1)], (12000,))
        (other,) = apply("Reshape", [flat, ints(60, -1)], (60, 200))
        np.testing.assert_array_equal(other.numpy(), w.numpy().reshape(60, 200))
        assert apply("Reshape", [other, ints(4, 50, 60)], (4, 50, 60))[0] is w
        (longer,) = apply("Unsqueeze", [w, ints(0)], (1, 4, 50, 60))
        assert apply("Squeeze", [longer, ints(0)], (4, 50, 60))[0] is w
        (two,) = apply("Flatten", [w], (4, 3000), axis=1)
        assert apply("Reshape", [two, ints(4, 50, 60)], (4, 50, 60))[0] is w

    def test_moves_that_do_nothing(self) -> None:
        w = large(70, 80)
        assert apply("Transpose", [w], (70, 80), perm=(0, 1))[0] is w
        assert apply("Reshape", [w, ints(70, 80)], (70, 80))[0] is w
        assert apply("Identity", [w], (70, 80))[0] is w


def test_what_a_constant_was_folded_from_does_not_depend_on_what_else_is_in_use() -> None:
    """Exact proofs read the expressions: of two operands with equal contents, each stands for its own number."""
    two, four = (from_array(np.full(3, number, np.float32)) for number in (2.0, 4.0))
    (root,) = apply("Sqrt", [four], (3,))
    assert root.digest == two.digest
    (of_root,) = apply("Neg", [root], (3,))
    (of_two,) = apply("Neg", [two], (3,))
    (again,) = apply("Neg", [root], (3,))
    assert of_root.digest == of_two.digest
    for folded, operand in ((of_root, root), (of_two, two)):
        assert folded.origin is not None
        assert folded.origin.inputs == (operand,)
    assert again is of_root


@pytest.mark.parametrize(
    ("op", "before", "after", "attrs"),
    [("Flatten", (0,), (1, 0), {"axis": 0}), ("Flatten", (2, 0), (2, 0), {}), ("Squeeze", (1, 3, 0), (3, 0), {})],
)
def test_no_elements_are_moved_as_any_others(
    op: str, before: tuple[int, ...], after: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    (moved,) = apply(op, [from_array(np.zeros(before, np.float32))], after, **attrs)
    assert moved.numpy().shape == after
