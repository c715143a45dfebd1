"""Several models with one file of weights: tensors of equal bytes are stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import onnx

from graph_rewrite.ir.constants import Constant, chunks, nbytes, tensor_proto
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.saving import ALIGNMENT, SMALLEST_EXTERNAL, external_proto, to_proto


class SharedWeights:
    """Puts the large tensors of several models into one stream, equal bytes once, whatever their names and types.

    Args:
        stream: the file of weights, open for writing.
        location: its name, as the models refer to it.
    """

    def __init__(self, stream: BinaryIO, location: str) -> None:
        self._stream, self._location, self._end = stream, location, 0
        self._places: dict[bytes, int] = {}

    def __call__(self, name: str, constant: Constant) -> onnx.TensorProto:
        size = nbytes(constant)
        if size < SMALLEST_EXTERNAL:
            return tensor_proto(constant, name)
        digest = hashlib.sha256()
        for chunk in chunks(constant):
            digest.update(chunk)
        place = self._places.get(digest.digest())
        if place is None:
            place = self._places[digest.digest()] = self._end + -self._end % ALIGNMENT
            self._stream.write(bytes(place - self._end))
            self._stream.writelines(chunks(constant))
            self._end = place + size
        return external_proto(name, constant, self._location, place, size)


def save_together(models: Mapping[str, tuple[Graph, Mapping[str, str]]], folder: Path, weights: str) -> None:
    """Write graphs with their metadata as model files into a folder, with one file of weights for all of them.

    Args:
        models: graph and metadata by the name of the file.
        weights: the name of the file of weights.
    """
    with (folder / weights).open("wb") as stream:
        shared = SharedWeights(stream, weights)
        for name, (graph, metadata) in models.items():
            proto = to_proto(graph, shared, metadata)
            (folder / name).write_bytes(proto.SerializeToString(deterministic=True))
