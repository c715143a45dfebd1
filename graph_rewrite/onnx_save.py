"""Writing a Graph as an ONNX file: a finished model, or a candidate in a workspace that shares its weights."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir

from graph_rewrite.constants import Constant
from graph_rewrite.ir import Graph, Node
from graph_rewrite.types import attribute_proto

INLINE_BYTES = 1 << 20
"""Tensors up to this size are stored in the model file; larger ones beside it once the model outgrows INLINE_TOTAL."""
INLINE_TOTAL = 256 << 20
_ALIGNMENT = 4096

TensorWriter = Callable[[str, Constant], onnx.TensorProto]


def to_proto(graph: Graph, write_tensor: TensorWriter | None = None, metadata: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """The graph as a ModelProto; `write_tensor(name, constant)` decides where each initializer's bytes go."""
    write_tensor = write_tensor or inline_tensor
    names = _value_names(graph)
    model = onnx.ModelProto()
    model.CopyFrom(graph.header)
    proto, used = model.graph, set()
    for node in graph.order():
        emitted = proto.node.add()
        _emit(node, names, emitted)
        used.update(v for v in node.inputs if v is not None)
    _emit_roots(graph, names, proto)
    used.update(graph.outputs, (v for _, v in graph.pins))
    for value, constant in graph.constants.items():
        if value in used:
            proto.initializer.append(write_tensor(names[value], constant))
    _declare(model, graph)
    for key, text in (metadata or {}).items():
        entry = next((e for e in model.metadata_props if e.key == key), None) or model.metadata_props.add(key=key)
        entry.value = text
    return model


def save(graph: Graph, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> Path:
    """Write a model file atomically; weights go to `<name>.data` beside it when they exceed 256 MiB in all.

    Refused runtime optimisers are recorded in `metadata_props` by whoever deploys; see `Deployment`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    total = sum(_nbytes(constant) for constant in graph.constants.values())
    data = path.with_name(path.name + ".data")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        model_file, data_file = Path(folder, "model"), Path(folder, "data")
        if total <= INLINE_TOTAL:
            model = to_proto(graph, metadata=metadata)
        else:
            with data_file.open("wb") as stream:
                model = to_proto(graph, _appender(stream, data.name), metadata)
        with model_file.open("wb") as out:
            out.write(model.SerializeToString(deterministic=True))
            out.flush()
            os.fsync(out.fileno())
        if data_file.exists():
            os.replace(data_file, data)
        else:
            data.unlink(missing_ok=True)
        os.replace(model_file, path)
    return path


def materialize(graph: Graph, workspace: Path) -> Path:
    """Write a candidate into `workspace`: a small file of its own, weights shared with other candidates by content."""
    (workspace / "weights").mkdir(parents=True, exist_ok=True)
    path = workspace / f"{graph.hash}.onnx"
    if not path.exists():
        model = to_proto(graph, lambda name, constant: _shared_tensor(name, constant, workspace))
        _write_atomically(path, model.SerializeToString(deterministic=True))
    return path


def inline_tensor(name: str, constant: Constant) -> onnx.TensorProto:
    """A TensorProto that holds the elements; bit by bit the loaded one where the constant was loaded."""
    tensor: onnx_ir.TensorProtocol
    if constant.tensor is not None:
        tensor = constant.tensor
        proto = onnx.TensorProto(name=name, data_type=constant.type.dtype, dims=constant.type.shape)
        if constant.type.dtype == onnx.TensorProto.STRING:
            proto.string_data.extend(s if isinstance(s, bytes) else str(s).encode() for s in tensor.numpy().reshape(-1))
        else:
            proto.raw_data = tensor.tobytes()
        return proto
    return onnx.numpy_helper.from_array(np.ascontiguousarray(constant.numpy()).reshape(constant.type.shape), name)


def _shared_tensor(name: str, constant: Constant, workspace: Path) -> onnx.TensorProto:
    size = _nbytes(constant)
    if size < INLINE_BYTES // 16 or constant.type.dtype == onnx.TensorProto.STRING:
        return inline_tensor(name, constant)
    file = workspace / "weights" / constant.digest
    if not file.exists():
        _write_atomically(file, _raw_bytes(constant))
    return _external_proto(name, constant, f"weights/{constant.digest}", 0, size)


def _appender(stream: object, location: str) -> TensorWriter:
    offset = 0

    def write(name: str, constant: Constant) -> onnx.TensorProto:
        nonlocal offset
        size = _nbytes(constant)
        if size < 1024 or constant.type.dtype == onnx.TensorProto.STRING:
            return inline_tensor(name, constant)
        padding = -offset % _ALIGNMENT
        stream.write(bytes(padding))  # type: ignore[attr-defined]
        stream.write(_raw_bytes(constant))  # type: ignore[attr-defined]
        start, offset = offset + padding, offset + padding + size
        return _external_proto(name, constant, location, start, size)

    return write


def _external_proto(name: str, constant: Constant, location: str, offset: int, length: int) -> onnx.TensorProto:
    proto = onnx.TensorProto(name=name, data_type=constant.type.dtype, dims=constant.type.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", str(offset)), ("length", str(length))):
        proto.external_data.add(key=key, value=text)
    return proto


def _raw_bytes(constant: Constant) -> bytes | memoryview:
    if constant.tensor is not None:
        return constant.tensor.tobytes()
    array = np.ascontiguousarray(constant.numpy())
    return array.tobytes() if array.ndim == 0 else array.reshape(-1).view(np.uint8).data


def _nbytes(constant: Constant) -> int:
    if constant.tensor is not None and constant.type.dtype != onnx.TensorProto.STRING:
        return int(constant.tensor.nbytes)
    if constant.type.dtype == onnx.TensorProto.STRING:
        return 0
    return constant.type.size * onnx.helper.tensor_dtype_to_np_dtype(constant.type.dtype).itemsize


def _write_atomically(path: Path, data: bytes | memoryview) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _value_names(graph: Graph) -> dict[int, str]:
    taken = set(graph.output_names) | {name for name, _ in graph.pins}
    names: dict[int, str] = {value: graph.names[value] for value in graph.inputs}
    produced = [value for node in graph.order() for value in node.outputs]
    for name, value in (*zip(graph.output_names, graph.outputs, strict=True), *graph.pins):
        if value not in graph.inputs and (value in graph.producer or value in graph.constants):
            names.setdefault(value, name)
    for value in (*produced, *graph.constants):
        if value in names:
            continue
        original = graph.names.get(value)
        if original is not None and original.startswith("\0"):
            names[value] = ""
        elif original is not None and original not in taken:
            names[value] = original
        else:
            names[value] = _fresh(f"rewritten_{value}", graph)
    for node in graph.nodes.values():
        for value in node.inputs:
            if value is not None and value not in names:
                names[value] = graph.names[value]
    return names


def _fresh(name: str, graph: Graph) -> str:
    known: frozenset[str] | None = graph.memo.get("all_names")
    if known is None:
        known = graph.memo["all_names"] = frozenset(graph.names.values())
    while name in known:
        name += "_"
    return name


def _emit(node: Node, names: Mapping[int, str], out: onnx.NodeProto) -> None:
    if node.proto is not None:
        out.CopyFrom(node.proto)
        out.ClearField("input")
        out.ClearField("output")
    else:
        out.op_type, out.domain, out.name = node.op, node.domain, f"rewritten_{node.id}"
        out.attribute.extend(attribute_proto(name, node.attrs[name]) for name in sorted(node.attrs))
    out.input.extend("" if v is None else names[v] for v in node.inputs)
    out.output.extend(names[v] for v in node.outputs)


def _emit_roots(graph: Graph, names: Mapping[int, str], proto: onnx.GraphProto) -> None:
    done: set[str] = set()
    for name, value in (*zip(graph.output_names, graph.outputs, strict=True), *graph.pins):
        source = names.get(value, graph.names.get(value, name))
        if source != name and name not in done:
            proto.node.add(op_type="Identity", name=f"output_{name}", input=[source], output=[name])
        done.add(name)


def _declare(model: onnx.ModelProto, graph: Graph) -> None:
    """Opset imports of what the rewritten graph uses, shapes of the inputs where they were fixed, no stale value_info."""
    domains = {node.domain for node in graph.nodes.values()}
    imported = {entry.domain for entry in model.opset_import}
    for domain in sorted(domains - imported - {"", "ai.onnx"}):
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = graph.opset
    live = {name for node in model.graph.node for name in node.output}
    kept = [info for info in model.graph.value_info if info.name in live]
    if len(kept) != len(model.graph.value_info):
        model.graph.ClearField("value_info")
        model.graph.value_info.extend(kept)
    for info, value in zip(model.graph.input, graph.inputs, strict=True):
        type = graph.types.get(value)
        if type is not None and info.type.HasField("tensor_type"):
            info.type.CopyFrom(onnx.helper.make_tensor_type_proto(type.dtype, type.shape))
    # Output shapes may have been symbolic; leave them as declared unless every dimension is known.
    for info, value in zip(model.graph.output, graph.outputs, strict=True):
        type = graph.types.get(value)
        if type is not None and info.type.HasField("tensor_type"):
            info.type.CopyFrom(onnx.helper.make_tensor_type_proto(type.dtype, type.shape))


def metadata_json(value: object) -> str:
    """Compact JSON for `metadata_props`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
