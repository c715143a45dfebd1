"""Writing a Graph as an ONNX file: a finished model, or a candidate in a workspace that shares its weights."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import onnx

from graph_rewrite.errors import UserError
from graph_rewrite.ir.constants import Constant, chunks, nbytes, tensor_proto
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.loading import static_type
from graph_rewrite.onnx_files.names import GraphNames, names_for_saving
from graph_rewrite.onnx_files.node_order import listed_nodes
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.onnx_files.weight_files import data_files_of, remove_unread
from graph_rewrite.operators.standard_types import attribute_proto
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.deadline import check_time

INLINE_TOTAL = 256 << 20
"""A model whose weights take more bytes than this is saved with its weights beside it."""
SMALLEST_EXTERNAL = 1024
"""Tensors of fewer bytes stay in the model file."""
_SMALLEST_SHARED = 64 << 10
_PIECE = 16 << 20  # Bytes that are written between two looks at the time.
ALIGNMENT = 4096
"""Tensors in a file of weights begin at multiples of this, so that they can be mapped."""

TensorWriter = Callable[[str, Constant], onnx.TensorProto]


def to_proto(
    graph: Graph, write_tensor: TensorWriter | None = None, metadata: Mapping[str, str] | None = None
) -> onnx.ModelProto:
    """Return the graph as a ModelProto; `write_tensor(name, constant)` decides where each initializer's bytes go."""
    write_tensor = write_tensor or _inline
    named = names_for_saving(graph)
    names = named.values
    model = onnx.ModelProto()
    model.CopyFrom(graph.header)
    proto = model.graph
    _emit_nodes(graph, named, proto)
    for value in graph.inputs:
        if value in graph.stored:
            proto.initializer.append(write_tensor(names[value], graph.stored[value]))
    for value, constant in graph.constants.items():
        # Nothing reads some initializers of some models; they stay, what rewrites left behind does not.
        if graph.consumers.get(value) or value in graph.outputs or value in graph.names:
            proto.initializer.append(write_tensor(names[value], constant))
    _declare_operator_sets(model, graph)
    _declare_types(proto, graph, names)
    for key, text in (metadata or {}).items():
        entry = next((e for e in model.metadata_props if e.key == key), None) or model.metadata_props.add(key=key)
        entry.value = text
    return model


def save(
    graph: Graph,
    path: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    external_weights: bool = False,
    durable: bool = True,
) -> Path:
    """Write a model file atomically; weights go to `<name>.data` beside it when they exceed 256 MiB in all (to
    `<name>.1.data` where that exists already, so that model and weights fit together at every moment). Weights of the
    model that was there go, unless another model in the folder reads them.

    Refused runtime optimisers are recorded in `metadata_props` by whoever deploys; see `Deployment`.

    Args:
        external_weights: put the weights into a file of their own, however few they are.
        durable: wait until the disk has it.

    Raises:
        UserError: the folder of `path` does not exist.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {path.parent}; create it first")
    data, outdated = free_data_file(path), data_files_of(path)
    total = sum(nbytes(constant) for constant in (*graph.constants.values(), *graph.stored.values()))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        model_file, data_file = Path(folder, "model"), Path(folder, "data")
        if total <= (0 if external_weights else INLINE_TOTAL):
            model = to_proto(graph, metadata=metadata)
        else:
            with data_file.open("wb") as stream:
                model = to_proto(graph, _Appender(stream, data.name), metadata)
                _finish(stream, durable)
        with model_file.open("wb") as out:
            out.write(model.SerializeToString(deterministic=True))
            _finish(out, durable)
        if data_file.exists() and data_file.stat().st_size:
            os.replace(data_file, data)
        os.replace(model_file, path)
    remove_unread(outdated, path)
    return path


def _finish(stream: BinaryIO, durable: bool) -> None:
    stream.flush()
    if durable:
        os.fsync(stream.fileno())


def free_data_file(path: Path) -> Path:
    """Return a name for the weights of the model `path` that no file beside it has yet."""
    names = itertools.chain([f"{path.name}.data"], (f"{path.name}.{n}.data" for n in itertools.count(1)))
    return next(file for file in map(path.with_name, names) if not file.exists())


def materialize(graph: Graph, workspace: Path) -> Path:
    """Write a candidate into `workspace`: a small file of its own, weights shared with other candidates by content.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    (workspace / "weights").mkdir(parents=True, exist_ok=True)
    path = workspace / f"{graph.named_hash}.onnx"
    if not path.exists():
        model = to_proto(graph, lambda name, constant: _shared_tensor(name, constant, workspace))
        replace_file(path, model.SerializeToString(deterministic=True))
    return path


def _inline(name: str, constant: Constant) -> onnx.TensorProto:
    return tensor_proto(constant, name)


def _shared_tensor(name: str, constant: Constant, workspace: Path) -> onnx.TensorProto:
    size = nbytes(constant)
    if size < _SMALLEST_SHARED:
        return tensor_proto(constant, name)
    file = workspace / "weights" / constant.digest
    if not file.exists():
        replace_file(file, _while_time_is_left(chunks(constant)))
    return external_proto(name, constant, f"weights/{constant.digest}", 0, size)


def _while_time_is_left(parts: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    for part in parts:
        view = memoryview(part)
        for begin in range(0, len(view), _PIECE):
            check_time()
            yield view[begin : begin + _PIECE]


class _Appender:
    """Put large tensors one after another into a data file; each constant once."""

    def __init__(self, stream: BinaryIO, location: str) -> None:
        self._stream, self._location, self._end = stream, location, 0

    def __call__(self, name: str, constant: Constant) -> onnx.TensorProto:
        size = nbytes(constant)
        if size < SMALLEST_EXTERNAL:
            return tensor_proto(constant, name)
        padding = -self._end % ALIGNMENT
        self._stream.write(bytes(padding))
        self._stream.writelines(chunks(constant))
        start, self._end = self._end + padding, self._end + padding + size
        return external_proto(name, constant, self._location, start, size)


def external_proto(name: str, constant: Constant, location: str, offset: int, length: int) -> onnx.TensorProto:
    """Return the entry of a constant whose bytes lie in the file `location` beside the model."""
    proto = onnx.TensorProto(name=name, data_type=constant.type.dtype, dims=constant.type.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
        proto.external_data.add(key=key, value=text)
    return proto


def _emit_nodes(graph: Graph, names: GraphNames, proto: onnx.GraphProto) -> None:
    for node in listed_nodes(graph):
        _emit(node, names.values, names.nodes[node.id], proto.node.add())
    for i, name in names.aliases.items():
        source = names.values[graph.outputs[i]]
        proto.node.add(op_type="Identity", name=name, input=[source], output=[graph.output_names[i]])


def _emit(node: Node, names: Mapping[int, str], name: str, out: onnx.NodeProto) -> None:
    if node.proto is not None:
        out.CopyFrom(node.proto)
        out.ClearField("input")
        out.ClearField("output")
    else:
        out.op_type, out.domain, out.name = node.op, node.domain, name
        out.attribute.extend(attribute_proto(attr, node.attrs[attr]) for attr in sorted(node.attrs))
    explicit = node.inputs[: len(node.inputs) - len(node.captures)]
    out.input.extend("" if value is None else names[value] for value in explicit)
    out.output.extend(names[value] for value in node.outputs)


def _declare_operator_sets(model: onnx.ModelProto, graph: Graph) -> None:
    """Import every operator set in use, inside subgraphs too, and raise the IR version to what they need."""
    opset, protos = graph.opset, [node.proto for node in graph.nodes.values() if node.opaque and node.proto is not None]
    inner = (node.domain for proto in protos for body in attribute_graphs(proto) for node in inner_nodes(body))
    used = {*(node.domain for node in model.graph.node), *inner}
    domains = {"" if domain == "ai.onnx" else domain for domain in used}
    imported = {"" if entry.domain == "ai.onnx" else entry.domain for entry in model.opset_import}
    for domain in sorted(domains - imported):
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version != opset:
            entry.version = opset
            least = onnx.helper.find_min_ir_version_for([entry], ignore_unknown=True)
            model.ir_version = max(model.ir_version, least)


def _declare_types(proto: onnx.GraphProto, graph: Graph, names: Mapping[int, str]) -> None:
    """Declare the types of inputs and outputs that are known better than declared, and drop value_info of values that
    are gone."""
    present = {*names.values()}
    kept = [info for info in proto.value_info if info.name in present]
    if len(kept) != len(proto.value_info):
        proto.ClearField("value_info")
        proto.value_info.extend(kept)
    for infos, values in ((proto.input, graph.inputs), (proto.output, graph.outputs)):
        for info, value in zip(infos, values, strict=True):
            _declare_type(info.type, graph.types.get(value))


def _declare_type(declared: onnx.TypeProto, type: TensorType | None) -> None:
    if type is None or static_type(declared) == type or not (declared.HasField("tensor_type") or _is_unset(declared)):
        return
    declared.tensor_type.CopyFrom(onnx.helper.make_tensor_type_proto(type.dtype, type.shape).tensor_type)


def _is_unset(declared: onnx.TypeProto) -> bool:
    return declared.WhichOneof("value") is None
