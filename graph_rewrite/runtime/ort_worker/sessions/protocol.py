"""The interface of an open model, whatever runtime it is opened in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class ValueInfo(Protocol):
    """An input or output of a model: `type` like `tensor(float)`, and `shape` with a text or None for a dimension that
    is open."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def shape(self) -> Sequence[int | str | None]: ...


class ModelSession(Protocol):
    """An open model: the part of `onnxruntime.InferenceSession` that every runtime has."""

    def get_inputs(self) -> Sequence[ValueInfo]:
        """Return the inputs, in the order of the file."""
        ...

    def get_outputs(self) -> Sequence[ValueInfo]:
        """Return the outputs, in the order of the file."""
        ...

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Return the outputs of these names, all of them for None, in arrays that no later run changes."""
        ...
