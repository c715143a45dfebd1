"""Models by URI: those of the zoo, and files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import ModelLoadError
from graph_rewrite.onnx_files.normalisation import INTERNAL_OPSET, NormalisationReport, normalise
from graph_rewrite.onnx_files.reading_once import load_once

Shapes = Mapping[str, tuple[int, ...]]

_SIZE = re.compile(r"\s*[0-9]{1,15}\s*")
_SHOWN = 200
"""Characters of a mistaken argument that its message repeats."""


@dataclass(frozen=True)
class Model:
    """An opened model: `original` is the file as it is, the baseline of every speed-up; `graph` is its normalised form,
    from which search starts."""

    uri: str
    path: Path
    original: Graph
    graph: Graph
    report: NormalisationReport
    shapes: Shapes = field(default_factory=dict)
    """Shapes that were fixed where the file leaves them open."""


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs by name, out of `name:1,128`.

    Raises:
        UserError: a text that is not of that form.
    """
    shapes = {}
    for text in texts:
        name, separator, dims = text.rpartition(":")
        if not separator or not name or not all(map(_SIZE.fullmatch, dims.split(","))):
            raise UserError(f"--shape {text[:_SHOWN]}: write it as NAME:1,128")
        shapes[name] = tuple(int(part) for part in dims.split(","))
    return shapes


_KEPT = 32


def open_model(
    uri: str,
    shapes: Shapes | None = None,
    target_opset: int | None = None,
    libraries: tuple[str, ...] = (),
    usual_opset: int = INTERNAL_OPSET,
) -> Model:
    """Open a model. Opening it again in the same process gives the same object while its file does not change, unless
    many others were opened since.

    Args:
        uri: `zoo://bert?layers=12&seq_len=128`, `file:path.onnx`, the name of a model of the zoo, or a path.
        shapes: shapes of inputs by name, for models with symbolic dimensions.
        target_opset: the operator set to convert the model to; see `normalise`.
        libraries: libraries with operators of custom domains; see `normalise`.
        usual_opset: the operator set to convert the model to unless another is asked for.

    Raises:
        UserError: unknown scheme, model or parameter; a parameter that is no integer; an impossible `target_opset`.
        ModelLoadError: no such file, or not a readable ONNX model.
        SymbolicShapeError: inputs have symbolic dimensions that `shapes` does not fix.
    """
    path = _locate(uri)
    try:
        state = path.stat()
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be opened: {error.strerror}{_zoo_hint(uri)}") from error
    fixed = tuple(sorted((name, tuple(shape)) for name, shape in (shapes or {}).items()))
    return _opened(
        uri, path, path.resolve(), state.st_mtime_ns, state.st_size, fixed, target_opset, libraries, usual_opset
    )


@lru_cache(maxsize=_KEPT)
def _opened(
    uri: str,
    path: Path,
    resolved: Path,
    changed: int,
    size: int,
    fixed: tuple[tuple[str, tuple[int, ...]], ...],
    target_opset: int | None,
    libraries: tuple[str, ...],
    usual_opset: int,
) -> Model:
    """Load and normalise a model; all arguments together tell one state of a file from another."""
    shapes = dict(fixed)
    original = load_once(path, shapes)
    graph, report = normalise(original, target_opset, libraries, usual_opset)
    return Model(uri, path, original, graph, report, shapes)


def _locate(uri: str) -> Path:
    if uri in zoo.all_names():
        return zoo.export(uri)
    scheme, colon, rest = uri.partition(":")
    if scheme == "file" and colon:
        # A path may begin with two slashes too; of a URI, a file has no host but this one.
        is_uri = rest.startswith("//") and urlsplit(uri).netloc in ("", "localhost")
        return Path(unquote(urlsplit(uri).path) if is_uri else rest)
    if scheme == "zoo" and colon:
        return _from_zoo(uri)
    if "://" in uri:
        raise UserError(f"unknown scheme {scheme!r} in {uri!r}; use zoo://NAME?PARAMETER=VALUE, file:PATH or a path")
    return Path(uri).expanduser()


def _from_zoo(uri: str) -> Path:
    parts = urlsplit(uri)
    name = parts.netloc or parts.path.lstrip("/")
    if (parts.netloc and parts.path.strip("/")) or parts.fragment:
        raise UserError(f"{uri!r}: write zoo://NAME?PARAMETER=VALUE&PARAMETER=VALUE")
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise UserError(f"{uri!r}: {error}; write zoo://NAME?PARAMETER=VALUE&PARAMETER=VALUE") from error
    params = dict(pairs)
    if len(params) != len(pairs):
        raise UserError(f"{uri!r}: a parameter is given twice")
    return zoo.export(name, **params)


def _zoo_hint(uri: str) -> str:
    """Return what to add to the error for a name that is neither a file nor in the zoo."""
    if any(sign in uri for sign in "/\\.:"):
        return ""
    names = zoo.all_names()
    close = difflib.get_close_matches(uri, names, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    return f"; the zoo has {', '.join(names)}{meant}"
