"""The runtime of a provider, and models opened in it."""

from __future__ import annotations

import functools
import importlib
import os

from ..deployment import Deployment
from ..options.providers import PROVIDERS
from ..sessions.protocol import ModelSession
from .protocol import ModelRuntime


@functools.cache
def runtime_of(provider: str) -> ModelRuntime:
    """Return the runtime that runs models with a provider. Its library is not loaded yet."""
    module = importlib.import_module(f".{PROVIDERS[provider].runtime}", __package__)
    found: ModelRuntime = module.RUNTIME
    return found


def open_session(
    path: str | os.PathLike[str], deployment: Deployment, *, measuring: bool = False, weights: str | None = None
) -> ModelSession:
    """Open a session on the model file `path`, run as `deployment` says: an `onnxruntime.InferenceSession`, or with
    another runtime an object that runs as one does.

    Settings hold for this session alone. Denormals are left as they are where that is impossible for
    `set_denormal_as_zero` (`sessions.flushing`).

    Args:
        measuring: several sessions are timed in turn, so that none may take cores while another runs.
        weights: the folder of the model's external data, where the file lies elsewhere.

    Raises RuntimeError where the provider is `cuda` and ONNX Runtime fell back to the CPU, which it does silently;
    where the deployment names the block of another kind of CPU; and where the runtime is not installed.
    """
    runtime = runtime_of(deployment.provider)
    if fault := runtime.fault():
        raise RuntimeError(fault)
    return runtime.open(os.fspath(path), deployment, measuring=measuring, weights=weights)
