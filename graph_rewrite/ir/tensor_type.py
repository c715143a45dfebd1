"""The static type of a tensor."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import onnx


class TensorType(NamedTuple):
    """Element type (`onnx.TensorProto.DataType`) and static shape of a value. A tuple, as it is part of the keys of
    most memos."""

    dtype: int
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return _type_text(self.dtype, self.shape)


@lru_cache(maxsize=65536)
def _type_text(dtype: int, shape: tuple[int, ...]) -> str:
    return f"{onnx.TensorProto.DataType.Name(dtype).lower()}[{','.join(map(str, shape))}]"
