"""The list of a bundle's models: `bundle.json`, with the shapes, the deployment and the digest of each."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment

FORMAT = "rewritegym.bundle"
VERSION = 1
MANIFEST = "bundle.json"
GENERAL, WEIGHTS = "general.onnx", "weights.bin"
"""Names of the model for all shapes, and of the weights that all models share."""
SUFFIXES = (".actions.json", ".deployment.json")
"""What may follow the name of a model in the names of files beside it."""

_MOST_BYTES = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BundleModel:
    """A model of a bundle."""

    file: str
    """Its name in the folder."""
    sha256: str
    deployment: Deployment
    shapes: Shapes = field(default_factory=dict)
    """Shapes of inputs by name for which it is made; empty for the model for all shapes."""

    def to_json(self) -> dict[str, Any]:
        """Return the model as plain values."""
        shapes = {"shapes": {name: list(shape) for name, shape in self.shapes.items()}} if self.shapes else {}
        return {**shapes, "file": self.file, "sha256": self.sha256, "deployment": self.deployment.to_json()}


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle as its manifest describes it."""

    folder: Path
    general: BundleModel
    specialised: tuple[BundleModel, ...]
    weights: Mapping[str, str]
    """SHA-256 of the files of weights, by name."""

    @property
    def models(self) -> tuple[BundleModel, ...]:
        """Return all models, that for all shapes first."""
        return (self.general, *self.specialised)

    def path(self, model: BundleModel) -> Path:
        """Return the file of a model."""
        return self.folder / model.file

    def verify(self) -> None:
        """Compare every file with its digest, which reads all weights: about a second per gigabyte.

        Raises:
            UserError: a file is missing or is not the one that the bundle was written with.
        """
        for name, expected in (*((m.file, m.sha256) for m in self.models), *self.weights.items()):
            if digest_of(_present(self.folder, name)) != expected:
                raise UserError(
                    f"{self.folder / name} is not the file that the bundle was written with; copy the whole folder"
                    " again, or write the bundle anew"
                )

    def to_json(self) -> dict[str, Any]:
        """Return what the manifest holds."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "general": self.general.to_json(),
            "specialised": [model.to_json() for model in self.specialised],
            "weights": dict(self.weights),
        }


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a bundle: a folder, or the manifest in it."""
    return Path(path).is_dir() or Path(path).name == MANIFEST


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read the manifest of a bundle; no other file is opened.

    Args:
        path: the folder, or the manifest in it.

    Raises:
        UserError: no bundle, or one that this version cannot read.
    """
    folder = Path(path).parent if Path(path).name == MANIFEST else Path(path)
    manifest = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(f"{path}: there is no such bundle")
    if not manifest.is_file():
        raise UserError(f"{folder} is a folder without {MANIFEST}: name a model file, or a bundle of --specialise")
    if manifest.stat().st_size > _MOST_BYTES:
        raise UserError(f"{manifest}: too large for the list of a bundle; is the file damaged?")
    try:
        values = json.loads(manifest.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{manifest}: not JSON ({error}); is the file damaged?") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise UserError(f"{manifest}: not the list of a bundle, which has the format {FORMAT!r}")
    if values.get("version") != VERSION:
        raise UserError(f"{manifest}: of version {values.get('version')}, this program reads {VERSION}; update it")
    try:
        return _bundle(folder, values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{manifest}: {error!r}; is the file damaged?") from error


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_names(shapes: Iterable[Shapes]) -> list[str]:
    """Return names for models of single shapes, such as `ids-1x64.onnx`, after their first input, or after all inputs
    where that is the same in several."""
    wanted, found = list(shapes), list[str]()
    heads = [_named(dict([next(iter(one.items()))])) for one in wanted]
    for one, head in zip(wanted, heads, strict=True):
        stem = head if heads.count(head) == 1 else _named(one)[:150]
        names = (f"{stem}{suffix}.onnx" for suffix in ("", *(f"-{n}" for n in range(2, len(wanted) + 2))))
        taken = {name.lower() for name in (*found, GENERAL)}
        found.append(next(name for name in names if name.lower() not in taken))
    return found


def check_replaceable(folder: Path) -> None:
    """Check that a folder may be replaced by a bundle: there is none, it is empty, or it is a bundle and nothing else.

    Raises:
        UserError: something else would be lost.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is a file, and --specialise writes a folder: name another")
    names = {entry.relative_to(folder).as_posix() for entry in folder.rglob("*") if not entry.is_dir()}
    if not names:
        return
    if MANIFEST not in names:
        raise UserError(f"{folder} is a folder with other files, which is not replaced: name another")
    bundle = read_bundle(folder)
    own = {model.file + suffix for model in bundle.models for suffix in ("", *SUFFIXES)}
    if foreign := sorted(names - own - {MANIFEST, *bundle.weights}):
        raise UserError(
            f"{folder} holds {foreign[0]}, which is no part of the bundle and would be lost: move it away, or name"
            " another folder"
        )


def _bundle(folder: Path, values: Mapping[str, Any]) -> Bundle:
    general, specialised = _model(values["general"]), tuple(_model(one) for one in values["specialised"])
    if general.shapes or not all(model.shapes for model in specialised):
        raise ValueError("a model without shapes, or a general one with them")
    weights = {_inside(name): _digest(text) for name, text in values["weights"].items()}
    return Bundle(folder, general, specialised, weights)


def _model(values: Mapping[str, Any]) -> BundleModel:
    shapes = {str(name): tuple(map(int, shape)) for name, shape in values.get("shapes", {}).items()}
    deployment = Deployment.from_json(values["deployment"])
    return BundleModel(_inside(values["file"]), _digest(values["sha256"]), deployment, shapes)


def _inside(name: Any) -> str:
    """Return a name of a file that lies in the folder of the bundle, or below it."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is no name of a file")
    if any(path.is_absolute() or ".." in path.parts for path in (PurePosixPath(name), PureWindowsPath(name))):
        raise ValueError(f"{name!r} lies outside the folder")
    return name


def _digest(text: Any) -> str:
    if not isinstance(text, str) or not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest")
    return text


def _present(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise UserError(f"{path} is missing, which belongs to the bundle: copy the whole folder again")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{path} is a link out of the bundle's folder: copy the file itself")
    return path


def _named(shapes: Shapes) -> str:
    parts = (f"{name}-{'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items())
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(parts)).lstrip(".-") or "shape"
