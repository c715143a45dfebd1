"""Models that OpenVINO has compiled, run as `onnxruntime.InferenceSession` runs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ELEMENTS = {
    "f16": "float16", "f32": "float", "f64": "double", "boolean": "bool", "string": "string",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
"""Element types by OpenVINO's names, as ONNX Runtime names them."""
_RESULT = "/sink_port_0"
"""Appended by OpenVINO to the name of an ONNX output, for the node that holds it."""


@dataclass(frozen=True, slots=True)
class OpenVinoValue:
    """An input or output: `type` like `tensor(float)`; an open dimension is None."""

    name: str
    type: str
    shape: tuple[int | None, ...]


class OpenVinoSession:
    """A compiled model with the part of the interface of `onnxruntime.InferenceSession` that runs it.

    Several threads may run at the same time: each has a request of its own.

    Args:
        model: the model as OpenVINO has read it.
        compiled: the same, compiled.
        after_run: called with the request after each run.

    Raises:
        RuntimeError: an input or output is of a type that NumPy has not.
    """

    def __init__(self, model: Any, compiled: Any, after_run: Callable[[Any], None] | None = None) -> None:
        self._compiled, self._after_run, self._requests = compiled, after_run, threading.local()
        self._inputs = [_value(port.get_any_name(), port) for port in model.inputs]
        names = [result.get_friendly_name().removesuffix(_RESULT) for result in model.get_results()]
        self._outputs = [_value(name, port) for name, port in zip(names, model.outputs, strict=True)]
        self._places = {item.name: place for place, item in enumerate(self._inputs)}
        self._dtypes = {item.name: port.get_element_type().to_dtype() for item, port in _pairs(self._inputs, model)}

    def get_inputs(self) -> list[OpenVinoValue]:
        """Return the inputs, in the order of the file."""
        return list(self._inputs)

    def get_outputs(self) -> list[OpenVinoValue]:
        """Return the outputs, in the order of the file."""
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        """Return the name of the device, where a session of ONNX Runtime names its execution providers."""
        return ["OpenVINO CPU"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None
    ) -> list[Any]:
        """Return the outputs of these names, all of them for None, in arrays of their own.

        Raises:
            ValueError: an input is missing, unknown, or of another type; there is no such output; or options of a run
                are given, which are ONNX Runtime's.
            RuntimeError: OpenVINO fails, for instance on an input of another shape.
        """
        if run_options is not None:
            raise ValueError("run options are those of ONNX Runtime, and this model runs in OpenVINO")
        request = self._request()
        # OpenVINO reads the caller's memory where it can; outputs are copied, since the next run overwrites them.
        found = request.infer(self._fed(input_feed), share_inputs=True, share_outputs=False).to_tuple()
        if self._after_run is not None:
            self._after_run(request)
        if output_names is None:
            return list(found)
        by_name = dict(zip((item.name for item in self._outputs), found, strict=True))
        if unknown := [name for name in output_names if name not in by_name]:
            raise ValueError(f"the model has no output {unknown[0]!r}; it has {sorted(by_name)}")
        return [by_name[name] for name in output_names]

    def _request(self) -> Any:
        found = getattr(self._requests, "one", None)
        if found is None:
            found = self._requests.one = self._compiled.create_infer_request()
        return found

    def _fed(self, feeds: Mapping[str, Any]) -> dict[int, Any]:
        """Return the inputs by place. OpenVINO itself would convert types, and keep the last run's value of an input
        that is missing."""
        if len(feeds) != len(self._places) or any(name not in self._places for name in feeds):
            raise ValueError(f"the model has the inputs {sorted(self._places)}, and is given {sorted(feeds)}")
        fed = {}
        for name, value in feeds.items():
            array = np.asarray(value)
            if array.dtype != self._dtypes[name] and array.dtype.kind not in "OU":
                raise ValueError(f"the input {name!r} is of {self._dtypes[name]}, and is given as {array.dtype}")
            fed[self._places[name]] = array
        return fed


def _pairs(items: Sequence[OpenVinoValue], model: Any) -> zip[tuple[OpenVinoValue, Any]]:
    return zip(items, model.inputs, strict=True)


def _value(name: str, port: Any) -> OpenVinoValue:
    element = port.get_element_type().get_type_name()
    if element not in ELEMENTS:
        raise RuntimeError(f"{name!r} is of {element}, which is not run in OpenVINO: NumPy has no such type")
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        raise RuntimeError(f"{name!r} has an open number of dimensions: fix it, or run the model in ONNX Runtime")
    dims = tuple(dim.get_length() if dim.is_static else None for dim in shape)
    return OpenVinoValue(name, f"tensor({ELEMENTS[element]})", dims)
