"""Reading a model file, before anything in it is checked."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from graph_rewrite import zoo
from graph_rewrite.onnx_files.external_data import ModelLoadError


def read_model(path: Path) -> onnx.ModelProto:
    """Return the model in a file, unchecked.

    Raises:
        ModelLoadError: no such file, one that cannot be read, empty, truncated or not an ONNX model.
    """
    try:
        if path.is_dir():
            raise ModelLoadError(f"{path}: cannot be read: it is a folder; name a model file in it")
        # A pipe or a device has no end.
        if path.exists() and not path.is_file():
            raise ModelLoadError(f"{path}: is no file, but a device or a pipe; copy the model to a file")
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path}: no such file{_zoo_hint(path)}") from error
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not content:
        raise ModelLoadError(f"{path}: the file is empty; export or download the model again")
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelLoadError(
            f"{path}: not an ONNX model, or a truncated one ({len(content)} bytes; {error});"
            " compare its size with the original, or export it again"
        ) from error
    return model


def check_openable(path: Path) -> None:
    """Check that there is a file, without reading it.

    Raises:
        ModelLoadError: there is none, or its folder cannot be entered.
    """
    try:
        path.stat()
    except OSError as error:
        raise ModelLoadError(f"{path}: cannot be opened: {error.strerror}{_zoo_hint(path)}") from error


def _zoo_hint(path: Path) -> str:
    """Return what to add to the error for a model of the zoo where only a file will do."""
    name = os.fspath(path).removeprefix("zoo:").strip("/").partition("?")[0]
    if name not in zoo.all_names():
        return ""
    return f"; `rewritegym zoo {name}` writes that model of the zoo to a file and prints where"
