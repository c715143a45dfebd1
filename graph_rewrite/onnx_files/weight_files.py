"""Weights that lie beside a model file: which files they are, and a copy of them beside another model file.

A hard link would cost nothing, but onnx, onnx-ir and this library refuse weights with several links as a possible
attack, in the copy and in the user's own folder alike; and a symbolic link out of the model's folder is refused by ONNX
Runtime. So files are cloned where the file system can (btrfs, XFS: no space is taken), and copied elsewhere.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.subgraphs import attribute_graphs
from graph_rewrite.system.atomic_files import remove_unfinished, unfinished_name


def weight_files(model: Path) -> list[str]:
    """Return the names of the files with the weights of a model, relative to its folder and as that lists them
    (`./weights.bin` is `weights.bin`), sorted; none is read."""
    locations = _locations(onnx.load(model, format="protobuf", load_external_data=False))
    return sorted({Path(os.path.normpath(entry.value)).as_posix() for entry in locations})


def follow_links(model: onnx.ModelProto, folder: Path) -> Path:
    """Let a model name the files of its weights where they lie behind all links, relative to the folder that is
    returned and holds them all: ONNX Runtime follows no link out of the folder that it is given.

    Args:
        folder: the model's.
    """
    locations = _locations(model)
    real = [os.path.realpath(folder / entry.value) for entry in locations]
    home = os.path.commonpath([os.path.dirname(file) for file in real]) if real else os.path.abspath(folder)
    for entry, file in zip(locations, real, strict=True):
        entry.value = Path(os.path.relpath(file, home)).as_posix()
    return Path(home)


def _locations(model: onnx.ModelProto) -> list[onnx.StringStringEntryProto]:
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    tensors = [*_of_graph(model.graph), *(t for body in bodies for node in body for t in _of_node(node))]
    return [entry for tensor in tensors for entry in tensor.external_data if entry.key == "location"]


def data_files_of(path: Path) -> set[Path]:
    """Return the data files that belong to the model which lies at `path` now, by their names and by what it refers
    to."""
    names = _names_read(path)
    return {path.with_name(name) for name in names if name.startswith(f"{path.name}.") and name.endswith(".data")}


def copy_weights(source: Path, target: Path, names: list[str]) -> None:
    """Copy files from the folder `source` to the folder `target`, each as a whole. A file that is there already with
    the same content stays, so that several models of a folder share their weights.

    Raises:
        UserError: a file of that name with another content, which is left alone.
    """
    for name in names:
        before, after = source / name, target / name
        if after.exists() or after.is_symlink():
            if not after.is_file() or not filecmp.cmp(before, after, shallow=False):
                raise UserError(
                    f"{after} exists and is not the file of that name that {source} has with the model's weights:"
                    " write to another folder, or move it away"
                )
            continue
        after.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(after.parent, after.name)
        temporary = unfinished_name(after)
        try:
            _clone(before, temporary)
            shutil.copystat(before, temporary)
            os.replace(temporary, after)
        finally:
            temporary.unlink(missing_ok=True)


def remove_unread(files: Iterable[Path], model: Path) -> None:
    """Remove files with weights in the folder of a model, but those that it or another model there (`*.onnx`) reads."""
    if not (left := set(files)):
        return
    read = {name for one in {model, *model.parent.glob("*.onnx")} for name in _names_read(one)}
    for file in left:
        if file.name not in read:
            file.unlink(missing_ok=True)


def _names_read(model: Path) -> list[str]:
    """Return the names of the files with the weights of a model; none for a file that is no model."""
    try:
        return weight_files(model)
    except (OSError, DecodeError):
        return []


def _clone(source: Path, target: Path) -> None:
    """Copy a file inside the kernel, which shares the blocks where the file system can, or else as usual."""
    if hasattr(os, "copy_file_range"):
        try:
            with source.open("rb") as reader, target.open("xb") as writer:
                left = source.stat().st_size
                while left > 0 and (done := os.copy_file_range(reader.fileno(), writer.fileno(), left)) > 0:
                    left -= done
            if left == 0:
                return
        except OSError:
            pass  # across file systems, or one that cannot
        target.unlink(missing_ok=True)
    shutil.copyfile(source, target)


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)


def _of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
    for graph in attribute_graphs(node):
        yield from _of_graph(graph)
        for inner in graph.node:
            yield from _of_node(inner)
