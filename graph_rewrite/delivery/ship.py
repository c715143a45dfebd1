"""Hand over a model file: save it, compare that very file with the original as it will be opened, put it in place.

Nothing else writes a result, so that what a user gets is what was compared.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from graph_rewrite.delivery.bundles.manifest import digest_of
from graph_rewrite.delivery.deployed import DIGEST, METADATA_KEY, deployment_of, recorded_deployment, sidecar_of
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Deployment
from graph_rewrite.onnx_files.saving import free_data_file, save
from graph_rewrite.onnx_files.weight_files import copy_weights, data_files_of, remove_unread, weight_files
from graph_rewrite.runtime import FeedSpec
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.deadline import OutOfTime

_MODEL, _DATA = "model.onnx", "model.onnx.data"
_CHUNK = 1 << 20


class UnverifiedModelError(RuntimeError):
    """A model was to be handed over that does not agree with the original, or whose file changed after the comparison.
    Nothing is written then."""


@dataclass(frozen=True, eq=False)
class CheckedModel:
    """A saved model and the outcome of comparing that very file with the original.

    The file lies in a folder of its own, which is removed together with this object.
    """

    path: Path
    deployment: Deployment
    """The deployment that is recorded in the file, with which it was compared; the user's libraries of operators, which
    are in no file, with it."""
    outcome: Equivalence
    digests: Mapping[str, str]
    """SHA-256 of the files as they were compared, by name: the model, and its weights where they lie beside it."""

    def write_to(self, path: Path) -> Path:
        """Copy the compared file to `path`, its weights (if they lie beside it) to `<name>.data`, and its deployment to
        a JSON file beside it. Every byte is compared with what was verified while it is copied. Weights of a model that
        lay there before are removed, unless another model in the folder reads them.

        Raises:
            UnverifiedModelError: the comparison failed, or the file is not the one that was compared.
        """
        if not self.outcome.ok:
            raise UnverifiedModelError(f"{path} is not written, it was not verified: {self.outcome.message}")
        path.parent.mkdir(parents=True, exist_ok=True)
        outdated = data_files_of(path)
        model = b"".join(self._verified(_MODEL))
        if _DATA in self.digests:
            data = free_data_file(path)
            model = self._relocated(model, data.name)
            try:
                replace_file(data, self._verified(_DATA))
                _put(path, model, self.deployment)
            except BaseException:  # Ctrl-C too: weights without their model are of no use to anybody
                if not path.is_file() or path.read_bytes() != model:
                    data.unlink(missing_ok=True)
                raise
        else:
            _put(path, model, self.deployment)
        remove_unread(outdated, path)
        return path

    def _verified(self, name: str) -> Iterator[bytes]:
        """Read a file in chunks; raise at its end where it is not what was compared."""
        digest = hashlib.sha256()
        with self.path.with_name(name).open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != self.digests[name]:
            raise UnverifiedModelError(f"{self.path.with_name(name)} changed after it was verified; nothing is written")

    def _relocated(self, model: bytes, data: str) -> bytes:
        """Return the model with its weights in the file `data`, and nothing else changed."""
        moved = _with_location(model, data)
        if hashlib.sha256(_with_location(moved, _DATA)).hexdigest() != self.digests[_MODEL]:
            raise UnverifiedModelError("the model cannot be told where its weights lie without changing more of it")
        return moved


def checked_model(
    graph: Graph,
    original: str | os.PathLike[str],
    deployment: Deployment,
    *,
    workspace: Path,
    tolerance: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    data: Sequence[FeedSpec] = (),
    compare: Callable[[Path, Deployment], Equivalence] | None = None,
    external_weights: bool = False,
) -> CheckedModel:
    """Save a graph with its deployment, and compare that file with the file `original` as `equivalent` does, opened
    with the deployment that is recorded in it.

    Args:
        deployment: provider and threads; optimisers that the graph refuses are added.
        workspace: folder for the saved file, until it is written elsewhere.
        tolerance: largest error of an output relative to its scale; by default what rounding explains.
        rtol, atol, data: as in `equivalent`.
        compare: compares the saved file, opened with the recorded deployment, in another way than by `equivalent`.
        external_weights: put the weights into a file of their own, however few they are.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="checked-", dir=workspace))
    metadata = {METADATA_KEY: _text(deployment_of(graph, deployment))}
    try:
        path = save(graph, folder / _MODEL, metadata, external_weights=external_weights, durable=False)
        digests = {file.name: digest_of(file) for file in sorted(folder.iterdir())}
        recorded = replace(recorded_deployment(path), custom_ops=deployment.custom_ops)
        if compare is not None:
            outcome = compare(path, recorded)
        else:
            outcome = equivalent(original, path, recorded, tolerance=tolerance, rtol=rtol, atol=atol, data=data)
    except BaseException:
        _remove(folder, os.getpid())
        raise
    checked = CheckedModel(path, recorded, outcome, digests)
    weakref.finalize(checked, _remove, folder, os.getpid())
    return checked


class OriginalModel(CheckedModel):
    """The user's own file, kept: it is handed over byte by byte, with its symbolic dimensions, and its weights are not
    copied where they need not be."""

    def write_to(self, path: Path) -> Path:
        """Copy the model file to `path`, as `copy_original` does.

        Raises:
            UnverifiedModelError: the comparison failed, or the model file changed since.
            UserError: a file with other weights lies where those of the model would have to lie.
        """
        if not self.outcome.ok:
            raise UnverifiedModelError(f"{path} is not written, it was not verified: {self.outcome.message}")
        for _ in self._verified(self.path.name):
            pass
        path.parent.mkdir(parents=True, exist_ok=True)
        outdated = data_files_of(path)
        copy_original(self.path, path, self.deployment)
        remove_unread(outdated, path)
        return path


class UnmadeModel(CheckedModel):
    """The place of a file that is still to be made and compared. It cannot be written."""


def unmade_model(original: Path, deployment: Deployment) -> UnmadeModel:
    """Return the place of a file that will be compared with `original`."""
    return UnmadeModel(original, deployment, Equivalence(False, math.nan, math.nan, "it is not made yet"), {})


def kept_original(
    original: Path,
    deployment: Deployment,
    *,
    runnable: Path | None = None,
    tolerance: float | None = None,
    data: Sequence[FeedSpec] = (),
    unrun: bool = True,
) -> OriginalModel:
    """Return the original as what is handed over, run as it will be deployed and compared with itself without
    optimisations, as far as the time limit of the run allows.

    Args:
        runnable: the file that is run where the original leaves shapes open that must be fixed for that.
        tolerance, data: as in `checked_model`.
        unrun: return it also where no time is left to run it: run as always, it is what it was.

    Raises:
        OutOfTime: no time is left, and `unrun` is false.
    """
    file = original if runnable is None else runnable
    try:
        outcome = equivalent(file, file, deployment, tolerance=tolerance, data=data)
    except OutOfTime:
        if not unrun:
            raise
        outcome = Equivalence(True, 0.0, 0.0, "it is the same file; no time was left to run it")
    return OriginalModel(original, deployment, outcome, {original.name: digest_of(original)})


def copy_original(original: Path, path: Path, deployment: Deployment) -> Path:
    """Copy a model file byte by byte, with its deployment in a JSON file beside it.

    Weights beside the model keep their names. In its own folder both models read them; in another folder they are
    copied once, without taking space where the file system can clone, and further originals there share them. Where the
    model is a result itself, and so records a deployment, the JSON file names its digest: it is what counts.

    Raises:
        UserError: a file with other weights lies where those of the model would have to lie.
    """
    if original.parent.resolve() != path.parent.resolve():
        copy_weights(original.parent, path.parent, weight_files(original))
    model = original.read_bytes()
    named = {DIGEST: hashlib.sha256(model).hexdigest()} if METADATA_KEY.encode() in model else {}
    _put(path, model, deployment, **named)
    return path


def _put(path: Path, model: bytes, deployment: Deployment, **more: str) -> None:
    """Write a model file and its deployment, with what else is told there. That comes first: a model that is there has
    it, even where this process is killed."""
    replace_file(sidecar_of(path), _text(deployment, **more) + "\n")
    replace_file(path, model)


def _text(deployment: Deployment, **more: str) -> str:
    return json.dumps({**deployment.to_json(), **more}, sort_keys=True)


def _with_location(model: bytes, data: str) -> bytes:
    proto = onnx.ModelProto.FromString(model)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = data
    moved: bytes = proto.SerializeToString(deterministic=True)
    return moved


def _remove(folder: Path, owner: int) -> None:
    # A forked process holds a copy of the object, and must leave the file to its owner.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
