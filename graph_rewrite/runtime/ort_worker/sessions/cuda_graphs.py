"""Sessions that replay their runs as CUDA graphs, and take and return arrays as any session does.

A CUDA graph is recorded in one run and replayed in the next ones, which saves the launches of its kernels. A replay
reads and writes where the recorded run did, whatever is handed to it. So this session has fixed places on the device
for the inputs and outputs of each set of input shapes: `run` copies inputs there, replays, and copies outputs back.
Source: ONNX Runtime, "CUDA Execution Provider: using CUDA graphs", and `gpu_graph_id` in its keys of run options.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

_GRAPH_ID = "gpu_graph_id"
_NO_GRAPH = "-1"
MOST_GRAPHS = 8
"""Sets of input shapes that have a graph; each takes memory on the device. Further ones run as usual."""

_Arrays = dict[str, NDArray[Any]]


class CudaGraphSession(ort.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A session with a CUDA graph per set of input shapes.

    The first run with some shapes is a usual one, which tells the shapes of the outputs; the second records, the others
    replay. Runs of several threads wait for each other. Values that are no arrays of numbers run as usual. Whoever
    binds inputs and outputs (`run_with_iobinding`) has to bind the same places in every run.

    Args:
        device: where the fixed places are: `cuda`; tests take `cpu`.
    """

    def __init__(self, *args: Any, device: str = "cuda", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._device, self._busy = device, threading.Lock()
        self._graphs: dict[tuple[Any, ...], _Graph] = {}

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        shapes = _shapes(input_feed) if run_options is None else None
        with self._busy:
            if shapes in self._graphs:
                outputs = self._graphs[shapes].run(input_feed)
            else:
                found = super().run(None, input_feed, without_graph(run_options))
                outputs = dict(zip((item.name for item in self.get_outputs()), found, strict=True))
                if shapes is not None and len(self._graphs) < MOST_GRAPHS and _shapes(outputs) is not None:
                    number = len(self._graphs) + 1  # 0 is ONNX Runtime's own
                    self._graphs[shapes] = _Graph(self, number, self._device, input_feed, outputs)
        return list(outputs.values()) if not output_names else [_output(outputs, name) for name in output_names]

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        return super().run_with_ort_values(output_names, input_dict_ort_values, without_graph(run_options))

    def run_with_ortvaluevector(self, run_options: Any, *args: Any) -> Any:
        return super().run_with_ortvaluevector(without_graph(run_options), *args)

    def run_async(
        self, output_names: Any, input_feed: Any, callback: Any, user_data: Any, run_options: Any = None
    ) -> Any:
        return super().run_async(output_names, input_feed, callback, user_data, without_graph(run_options))

    def fix_outputs(self, binding: ort.IOBinding) -> None:
        """Run with a binding once, without a graph, and bind its outputs to where they came to lie."""
        self.run_with_iobinding(binding, without_graph(None))
        for item, value in zip(self.get_outputs(), binding.get_outputs(), strict=True):
            binding.bind_ortvalue_output(item.name, value)


def without_graph(run_options: Any) -> ort.RunOptions:
    """Return options (those given, if any) for a run that neither records nor replays."""
    chosen = ort.RunOptions() if run_options is None else run_options
    chosen.add_run_config_entry(_GRAPH_ID, _NO_GRAPH)
    return chosen


class _Graph:
    """The fixed places for one set of input shapes, and the number of the graph that uses them."""

    def __init__(
        self, session: CudaGraphSession, number: int, device: str, inputs: Mapping[str, Any], outputs: _Arrays
    ) -> None:
        self._session, self._options = session, ort.RunOptions()
        self._options.add_run_config_entry(_GRAPH_ID, str(number))
        self._inputs, self._outputs = _places(inputs, device), _places(outputs, device)
        self._binding = session.io_binding()
        for name, place in self._inputs.items():
            self._binding.bind_ortvalue_input(name, place)
        for name, place in self._outputs.items():
            self._binding.bind_ortvalue_output(name, place)

    def run(self, inputs: Mapping[str, Any]) -> _Arrays:
        for name, place in self._inputs.items():
            place.update_inplace(np.ascontiguousarray(inputs[name]))
        self._binding.synchronize_inputs()
        self._session.run_with_iobinding(self._binding, self._options)
        self._binding.synchronize_outputs()
        return {name: _own(place.numpy()) for name, place in self._outputs.items()}


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that the next run does not write to. What came from a device is a copy already."""
    return array if array.flags.owndata else array.copy()


def _places(arrays: Mapping[str, NDArray[Any]], device: str) -> dict[str, ort.OrtValue]:
    return {
        name: ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype.type, device, 0)
        for name, array in arrays.items()
    }


def _shapes(values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return what tells sets of arrays apart that need other places; None where one of them has no place."""
    if not all(isinstance(v, np.ndarray) and v.dtype.kind in "biuf" and v.size for v in values.values()):
        return None
    return tuple(sorted((name, array.shape, array.dtype.str) for name, array in values.items()))


def _output(outputs: _Arrays, name: str) -> NDArray[Any]:
    if name not in outputs:
        raise ValueError(f"the model has no output {name!r}; it has {sorted(outputs)}")
    return outputs[name]
