"""Hand over a bundle: save its models together, compare each of these very files with the original, put the folder in
place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from graph_rewrite.delivery.bundles.manifest import (
    GENERAL,
    MANIFEST,
    WEIGHTS,
    Bundle,
    BundleModel,
    Shapes,
    check_replaceable,
    digest_of,
    file_names,
)
from graph_rewrite.delivery.deployed import METADATA_KEY, deployment_of
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.ship import CheckedModel, UnverifiedModelError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.shared_weights import save_together
from graph_rewrite.onnx_files.weight_files import weight_files
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.atomic_files import replace_file, replace_folder

_CHUNK = 1 << 20

Finish = Callable[[Path], None]
"""Writes further files, which are about the models, into a folder that is about to be put in place."""


@dataclass(frozen=True, slots=True)
class BundlePart:
    """A graph that is to be a model of a bundle."""

    graph: Graph
    deployment: Deployment
    """Provider and threads; what the graph asks for is added."""
    compare: Callable[[Path, Deployment], Equivalence]
    """Compares its file with the original, opened with the recorded deployment."""
    shapes: Shapes = field(default_factory=dict)
    """Shapes of inputs for which it is made; empty for the model for all shapes."""


class WritableBundle(Protocol):
    """A bundle that was checked and can be written."""

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the models' files, that for all shapes first."""
        ...

    def write_to(self, folder: Path, finish: Finish | None = None) -> Path:
        """Write the bundle as a whole, in place of an older one.

        Raises:
            UnverifiedModelError: a model does not agree with the original, or its file changed since.
            UserError: the folder holds something else.
            OSError: the folder cannot be written; an older bundle is still there then.
        """
        ...


@dataclass(frozen=True, eq=False)
class CheckedBundle:
    """Models with one file of weights, and the outcome of comparing each with the original.

    The files lie in a folder of their own, which is removed together with this object.
    """

    bundle: Bundle
    """The saved bundle, with the digests of the files as they were compared."""
    outcomes: tuple[Equivalence, ...]
    """Of each model, that for all shapes first."""

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(model.file for model in self.bundle.models)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the file of weights."""
        return sum((self.bundle.folder / name).stat().st_size for name in self.bundle.weights)

    def write_to(self, folder: Path, finish: Finish | None = None) -> Path:
        if wrong := [outcome.message for outcome in self.outcomes if not outcome.ok]:
            raise UnverifiedModelError(f"{folder} is not written, it was not verified: {wrong[0]}")

        def fill(staged: Path) -> None:
            digests = {model.file: model.sha256 for model in self.bundle.models} | dict(self.bundle.weights)
            for name, expected in digests.items():
                replace_file(staged / name, _verified(self.bundle.folder / name, expected))
            _write_manifest(self.bundle, staged)

        return _put(folder, fill, finish)


@dataclass(frozen=True, eq=False)
class GeneralBundle:
    """A bundle that holds the model for all shapes alone, where no shape gains by one of its own. An original that is
    kept is in it byte by byte, with its files of weights."""

    general: CheckedModel

    @property
    def files(self) -> tuple[str, ...]:
        return (GENERAL,)

    def write_to(self, folder: Path, finish: Finish | None = None) -> Path:
        def fill(staged: Path) -> None:
            path = self.general.write_to(staged / GENERAL)
            model = BundleModel(GENERAL, digest_of(path), self.general.deployment)
            weights = {name: digest_of(staged / name) for name in weight_files(path)}
            _write_manifest(Bundle(staged, model, (), weights), staged)

        return _put(folder, fill, finish)


def checked_bundle(parts: Sequence[BundlePart], workspace: Path) -> CheckedBundle:
    """Save graphs as the models of a bundle, with the weights that they share stored once, and compare each.

    Args:
        parts: the model for all shapes, which has no shapes itself, and those for single shapes.
        workspace: folder for the saved files, until they are written elsewhere.

    Raises:
        OutOfTime: the time limit is reached.
    """
    general, *specialised = parts
    assert not general.shapes
    assert all(part.shapes for part in specialised)
    workspace.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bundle-", dir=workspace))
    try:
        deployments = [deployment_of(part.graph, part.deployment) for part in parts]
        names = [GENERAL, *file_names([part.shapes for part in specialised])]
        texts = [{METADATA_KEY: json.dumps(one.to_json(), sort_keys=True)} for one in deployments]
        graphs = zip(names, parts, texts, strict=True)
        save_together({name: (part.graph, text) for name, part, text in graphs}, folder, WEIGHTS)
        models = [
            BundleModel(name, digest_of(folder / name), deployment, part.shapes)
            for name, deployment, part in zip(names, deployments, parts, strict=True)
        ]
        made = Bundle(folder, models[0], tuple(models[1:]), {WEIGHTS: digest_of(folder / WEIGHTS)})
        outcomes = tuple(part.compare(folder / m.file, m.deployment) for part, m in zip(parts, models, strict=True))
        _write_manifest(made, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    checked = CheckedBundle(made, outcomes)
    weakref.finalize(checked, _remove, folder, os.getpid())
    return checked


def _put(folder: Path, fill: Finish, finish: Finish | None) -> Path:
    check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)

    def whole(staged: Path) -> None:
        fill(staged)
        if finish is not None:
            finish(staged)

    # Where the name is a link, the folder that it leads to is replaced, and not the link.
    replace_folder(Path(os.path.realpath(folder)), whole)
    return folder


def _write_manifest(bundle: Bundle, folder: Path) -> None:
    replace_file(folder / MANIFEST, json.dumps(bundle.to_json(), indent=2) + "\n")


def _verified(path: Path, expected: str) -> Iterator[bytes]:
    """Read a file in chunks; raise at its end where it is not what was compared."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != expected:
        raise UnverifiedModelError(f"{path} changed after it was verified; nothing is written")


def _remove(folder: Path, owner: int) -> None:
    # A forked process holds a copy of the object, and must leave the files to their owner.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
