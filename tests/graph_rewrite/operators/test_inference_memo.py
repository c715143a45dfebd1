"""Types are inferred once for operands of the same types, where no element of them counts."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from graph_rewrite.ir.constants import Constant, from_array, from_ints
from graph_rewrite.operators import inference
from graph_rewrite.operators.inference import BY_TYPES_ALONE, infer
from graph_rewrite.operators.standard_types import infer_standard

OPSET = 23
_LOGIC = {"And", "Or", "Xor"}
_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "Conv": ((1, 4, 5, 5), (4, 4, 3, 3), (4,)), "BatchNormalization": ((1, 4, 2, 2), (4,), (4,), (4,), (4,)),
    "Gemm": ((4, 4), (4, 4), (4,)), "LayerNormalization": ((4, 4), (4,), (4,)), "RMSNormalization": ((4, 4), (4,)),
    "Where": ((4, 4), (4, 1), (1, 4)),
}  # fmt: skip


def operands(op: str, seed: int) -> list[Constant]:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in _SHAPES.get(op, ((4, 4), (4,)))]
    if op in _LOGIC or op == "Where":
        arrays = [array > 0 if op in _LOGIC or not i else array for i, array in enumerate(arrays)]
    return [from_array(array) for array in arrays]


@pytest.mark.parametrize("op", sorted(BY_TYPES_ALONE))
def test_the_elements_do_not_count(op: str) -> None:
    known = operands(op, 0)
    without = infer_standard(op, "", {}, [(constant.type, None) for constant in known], 1, OPSET)
    assert without[0] is not None
    for seed in range(3):
        given = operands(op, seed)
        assert infer_standard(op, "", {}, [(constant.type, constant) for constant in given], 1, OPSET) == without


def test_they_are_inferred_once() -> None:
    with (
        mock.patch.object(inference, "_MEMO", {}),
        mock.patch.object(inference, "infer_standard", side_effect=infer_standard) as asked,
    ):
        for seed in range(5):
            entries = [(constant.type, constant) for constant in operands("Add", seed)]
            infer("Add", "", {}, entries, 1, OPSET)
        assert asked.call_count == 1


def test_where_they_count_each_is_looked_at() -> None:
    x = from_array(np.zeros((4, 6), np.float32))
    shapes = [(24,), (6, 4), (2, 12)]
    for shape in shapes:
        target = from_ints(shape)
        [found] = infer("Reshape", "", {}, [(x.type, None), (target.type, target)], 1, OPSET)
        assert found is not None
        assert found.shape == shape
