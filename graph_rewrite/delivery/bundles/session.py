"""A session on a bundle: each run goes to the model that was made for the shapes of its inputs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from graph_rewrite.delivery.bundles.manifest import Bundle, BundleModel
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment, check_block, open_session
from graph_rewrite.runtime.custom_ops import hint
from graph_rewrite.system.huge_pages import new_memory_in_huge_pages


class BundleSession:
    """Runs the models of a bundle as one, with the methods of `onnxruntime.InferenceSession`.

    `run` takes the model that was made for exactly the shapes of its inputs, or else the one for all shapes. What else
    a session has, such as `get_inputs`, is that of the model for all shapes.

    A session per model is opened when it is first needed, since each holds prepacked weights of its own in memory;
    `open_all` opens them at once. Several threads may run at the same time.

    Args:
        bundle: the bundle, whose files are compared with their digests here.
        deployments: how to run each model, in the order of `bundle.models`; as recorded by default.

    Raises:
        UserError: a file is missing or differs from what was written.
        RuntimeError: a model is bound to CPUs with another block of the blocked layout.
    """

    def __init__(self, bundle: Bundle, deployments: Mapping[str, Deployment] | None = None) -> None:
        self.bundle = bundle
        self._deployments = {m.file: m.deployment for m in bundle.models} | dict(deployments or {})
        for file, deployment in self._deployments.items():
            check_block(str(bundle.folder / file), deployment)
        bundle.verify()
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._opening = threading.Lock()

    def run(self, output_names: Any, input_feed: Mapping[str, Any], run_options: Any = None) -> Any:
        """Run the model for these inputs; as `InferenceSession.run`."""
        return self.session_for(input_feed).run(output_names, input_feed, run_options)

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """Run the model for these inputs; as `InferenceSession.run_with_ort_values`."""
        return self.session_for(input_dict_ort_values).run_with_ort_values(
            output_names, input_dict_ort_values, run_options
        )

    def run_async(
        self, output_names: Any, input_feed: Mapping[str, Any], callback: Any, user_data: Any, run_options: Any = None
    ) -> Any:
        """Run the model for these inputs; as `InferenceSession.run_async`."""
        return self.session_for(input_feed).run_async(output_names, input_feed, callback, user_data, run_options)

    def session_for(self, input_feed: Mapping[str, Any]) -> onnxruntime.InferenceSession:
        """Return the session that inputs of these shapes run with, for what needs one model, such as `io_binding`."""
        return self._session(self.model_for(input_feed))

    def model_for(self, input_feed: Mapping[str, Any]) -> BundleModel:
        """Return the model that inputs of these shapes run with."""
        for model in self.bundle.specialised:
            if all(name in input_feed and shape_of(input_feed[name]) == s for name, s in model.shapes.items()):
                return model
        return self.bundle.general

    def open_all(self) -> None:
        """Open the sessions of all models, so that no run has to wait for one."""
        for model in self.bundle.models:
            self._session(model)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._session(self.bundle.general), name)

    def _session(self, model: BundleModel) -> onnxruntime.InferenceSession:
        found = self._sessions.get(model.file)
        if found is None:
            with self._opening:
                found = self._sessions.get(model.file)
                if found is None:
                    found = open_with_hint(self.bundle.path(model), self._deployments[model.file])
                    self._sessions[model.file] = found
        return found


def open_with_hint(path: str | os.PathLike[str], deployment: Deployment) -> onnxruntime.InferenceSession:
    """Open a session as `open_session` does, with its weights in huge pages, as they were when it was measured.

    Raises:
        UserError: the model has an operator that ONNX Runtime does not know with these libraries.
    """
    try:
        with new_memory_in_huge_pages():
            return open_session(path, deployment)
    except Fail as error:
        if how := hint(str(error)):
            raise UserError(f"{os.fspath(path)}: {error}{how}") from error
        raise


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an array, an `OrtValue` or nested lists; None for what has none."""
    shape = getattr(value, "shape", None)
    try:
        found = np.shape(value) if shape is None else shape() if callable(shape) else shape
    except (ValueError, RuntimeError):  # lists of unequal lengths; a value that is no tensor
        return None
    return tuple(found)
