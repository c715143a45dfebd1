"""The deployment that is recorded in an optimised model, and sessions that run the model as it was measured."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators import nchwc
from graph_rewrite.runtime import Deployment, open_session
from graph_rewrite.runtime.custom_ops import hint, library_paths

METADATA_KEY = "rewritegym.deployment"
"""Entry of an ONNX model's `metadata_props` that holds its deployment as JSON."""

SIDECAR_SUFFIX = ".deployment.json"
"""Appended to the model's file name: the file beside it that holds the same JSON, for readers without ONNX."""


def sidecar_of(path: str | os.PathLike[str]) -> Path:
    """Return the file beside the model `path` that holds its deployment as JSON."""
    return Path(f"{os.fspath(path)}{SIDECAR_SUFFIX}")


def session(
    path: str | os.PathLike[str],
    *,
    custom_ops: Iterable[str | os.PathLike[str]] = (),
    **overrides: bool | int | str,
) -> onnxruntime.InferenceSession:
    """Open an ONNX Runtime session on the model file `path`, with the deployment that is recorded for it.

    Args:
        custom_ops: libraries with the model's operators of custom domains. They are loaded into this process, and run
            code; no file that is read names any.
        overrides: what to do otherwise than recorded: `threads`, and the session settings by name, such as
            `allow_spinning=False`. The gain was measured as recorded.

    Raises:
        FileNotFoundError: there is no such model.
        UserError: it records no deployment that can be read, an override is none that ONNX Runtime has, there is no
            such library, or none was given that holds an operator of the model.
        RuntimeError: the model was deployed to CUDA and no CUDA device answers, or it is bound to CPUs with another
            block of the blocked layout.
    """
    deployment = recorded_deployment(path)
    try:
        deployment = deployment.with_settings(overrides)
    except ValueError as error:
        raise UserError(f"{os.fspath(path)}: {error}") from error
    deployment = replace(deployment, custom_ops=library_paths(custom_ops))
    try:
        return open_session(path, deployment)
    except Fail as error:
        if how := hint(str(error)):
            raise UserError(f"{os.fspath(path)}: {error}{how}") from error
        raise


def deployment_of(graph: Graph, deployment: Deployment) -> Deployment:
    """Return the deployment that a rewritten graph is recorded with.

    It is `deployment` with the optimisers that the graph refuses and the session settings that it asks for, and with
    this CPU's block where the graph has operators of the blocked layout.
    """
    asked = deployment.asked_by(graph)
    blocked = any(node.domain == nchwc.DOMAIN for node in graph.nodes.values())
    return replace(asked, nchwc_block=nchwc.block_size()) if blocked else asked


def recorded_deployment(path: str | os.PathLike[str]) -> Deployment:
    """Return the deployment recorded in the model's `metadata_props`, or else in `<path>.deployment.json` beside it.

    Raises FileNotFoundError where there is no such model, and UserError where it is no ONNX model, records no
    deployment, or records one that this version cannot read.
    """
    model = Path(path)
    if not model.is_file():
        raise FileNotFoundError(f"{model}: no such model file")
    sidecar = sidecar_of(model)
    text, where = _from_metadata(model), f"{model}, metadata {METADATA_KEY!r}"
    if text is None and sidecar.is_file():
        text, where = sidecar.read_text(encoding="utf-8"), str(sidecar)
    if text is None:
        raise UserError(
            f"{model}: no deployment is recorded, neither in its metadata ({METADATA_KEY!r}) nor in {sidecar.name};"
            " was it written by RewriteGym? Any other model opens with onnxruntime.InferenceSession"
        )
    return _parse(text, where)


def _from_metadata(model: Path) -> str | None:
    try:
        proto = onnx.load(str(model), load_external_data=False)
    except DecodeError as error:
        raise UserError(f"{model}: not an ONNX model, or incomplete ({error})") from error
    return next((entry.value for entry in proto.metadata_props if entry.key == METADATA_KEY), None)


def _parse(text: str, where: str) -> Deployment:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: the recorded deployment is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{where}: the recorded deployment is not a JSON object but {text[:60]!r}")
    try:
        return Deployment.from_json(values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from error
