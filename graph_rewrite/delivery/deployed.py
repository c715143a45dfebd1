"""The deployment that is recorded in an optimised model, and sessions that run the model as it was measured."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from google.protobuf.message import DecodeError

from graph_rewrite.delivery.bundles.manifest import digest_of, is_bundle, read_bundle
from graph_rewrite.delivery.bundles.session import BundleSession, open_with_hint
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators import nchwc
from graph_rewrite.runtime import Deployment, ModelSession
from graph_rewrite.runtime.custom_ops import library_paths

METADATA_KEY = "rewritegym.deployment"
"""Entry of an ONNX model's `metadata_props` that holds its deployment as JSON."""

SIDECAR_SUFFIX = ".deployment.json"
"""Appended to the model's file name: the file beside it that holds the same JSON, for readers without ONNX."""


DIGEST = "sha256"
"""Entry of that file with the SHA-256 of the model, where the model itself records another deployment."""


def sidecar_of(path: str | os.PathLike[str]) -> Path:
    """Return the file beside the model `path` that holds its deployment as JSON."""
    return Path(f"{os.fspath(path)}{SIDECAR_SUFFIX}")


def session(
    path: str | os.PathLike[str],
    *,
    custom_ops: Iterable[str | os.PathLike[str]] = (),
    **overrides: bool | int | str,
) -> onnxruntime.InferenceSession | ModelSession | BundleSession:
    """Open a session on the model file `path`, with the deployment that is recorded for it: a session of ONNX Runtime,
    or where the model was deployed to another runtime an object with its `run`, `get_inputs` and `get_outputs`.

    Args:
        path: the model file, or a bundle that `--specialise` wrote, of which each run takes the model for its shapes.
        custom_ops: libraries with the model's operators of custom domains. They are loaded into this process, and run
            code; no file that is read names any.
        overrides: what to do otherwise than recorded: `threads`, and the session settings by name, such as
            `allow_spinning=False`. The gain was measured as recorded.

    Raises:
        FileNotFoundError: there is no such model.
        UserError: it records no deployment that can be read, an override is none that its runtime has, there is no
            such library, none was given that holds an operator of the model, or a file of a bundle is missing or was
            changed.
        RuntimeError: the model was deployed to CUDA and no CUDA device answers, to a runtime that is not installed, or
            it is bound to CPUs with another block of the blocked layout.
    """
    libraries = library_paths(custom_ops)
    if is_bundle(path):
        bundle = read_bundle(path)
        models = {m.file: _changed(path, m.deployment, libraries, overrides) for m in bundle.models}
        return BundleSession(bundle, models)
    return open_with_hint(path, _changed(path, recorded_deployment(path), libraries, overrides))


def _changed(
    path: str | os.PathLike[str],
    deployment: Deployment,
    libraries: tuple[str, ...],
    overrides: Mapping[str, bool | int | str],
) -> Deployment:
    try:
        return replace(deployment.with_settings(overrides), custom_ops=libraries)
    except ValueError as error:
        raise UserError(f"{os.fspath(path)}: {error}") from error


def deployment_of(graph: Graph, deployment: Deployment) -> Deployment:
    """Return the deployment that a rewritten graph is recorded with.

    It is `deployment` with the optimisers that the graph refuses and the session settings that it asks for, and with
    this CPU's block where the graph has operators of the blocked layout.
    """
    asked = deployment.asked_by(graph)
    blocked = asked.facts.is_onnxruntime and any(node.domain == nchwc.DOMAIN for node in graph.nodes.values())
    return replace(asked, nchwc_block=nchwc.block_size()) if blocked else asked


def recorded_deployment(path: str | os.PathLike[str]) -> Deployment:
    """Return the deployment recorded in the model's `metadata_props`, or else in `<path>.deployment.json` beside it.
    That comes first where it names the digest of this very file: a result that was optimised again, and kept.

    Raises FileNotFoundError where there is no such model, and UserError where it is no ONNX model, records no
    deployment, or records one that this version cannot read.
    """
    model = Path(path)
    if not model.is_file():
        raise FileNotFoundError(f"{model}: no such model file")
    sidecar = sidecar_of(model)
    text, where = _from_metadata(model), f"{model}, metadata {METADATA_KEY!r}"
    if sidecar.is_file():
        beside = sidecar.read_text(encoding="utf-8", errors="replace")
        if text is None or _is_of(beside, model):
            text, where = beside, str(sidecar)
    if text is None:
        raise UserError(
            f"{model}: no deployment is recorded, neither in its metadata ({METADATA_KEY!r}) nor in {sidecar.name};"
            " was it written by RewriteGym? Any other model opens with onnxruntime.InferenceSession"
        )
    values = _parse(text, where)
    try:
        return Deployment.from_json({name: value for name, value in values.items() if name != DIGEST})
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from error


def _from_metadata(model: Path) -> str | None:
    try:
        proto = onnx.load(str(model), load_external_data=False)
    except DecodeError as error:
        raise UserError(f"{model}: not an ONNX model, or incomplete ({error})") from error
    return next((entry.value for entry in proto.metadata_props if entry.key == METADATA_KEY), None)


def _is_of(text: str, model: Path) -> bool:
    """Return whether the text of a file beside a model names the digest of the model."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(values, dict) and DIGEST in values and values[DIGEST] == digest_of(model)


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: the recorded deployment is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{where}: the recorded deployment is not a JSON object but {text[:60]!r}")
    return values
