"""Outputs that are the same on all inputs, such as those behind a head of zeros: agreement there proves little, so the
values before them decide, which bear the same name in both files.

Such an output counts as equal in two cases. Either the original's last values that still change from input to input are
the same in both models, and the optimised output is computed from values that are the same in both. Or what lies
between such values and the output is the same, operator by operator and weight by weight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from graph_rewrite.delivery.comparison_process import ComparisonError, run_comparison
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import application_hash
from graph_rewrite.onnx_files.weight_files import follow_links
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.ort_worker.probing import Probe
from graph_rewrite.system.scratch import scratch_folder

_PROBED_BYTES = 256 << 20
"""Most bytes of inner values that are compared per input; those nearest to the outputs are."""
_INPUTS = 2
_SHOWN = 3
_SHAPE_ONLY = frozenset({"Shape", "Size"})
_BYTES: Mapping[int, int] = {
    TensorProto.DOUBLE: 8, TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2,
    TensorProto.INT64: 8, TensorProto.INT32: 4,
    TensorProto.INT8: 1, TensorProto.UINT8: 1, TensorProto.BOOL: 1,
}  # fmt: skip
"""Sizes of the types of values that are compared."""


@dataclass(frozen=True)
class ModelFile:
    """A model file and its graph."""

    path: Path
    graph: Graph

    def value_of(self, output: str) -> int:
        return self.graph.outputs[self.graph.output_names.index(output)]


@dataclass(frozen=True)
class Hidden:
    """The outcome for one output: `through` names the values before it that agree; `reason` says why nothing can be
    told, and is empty where the output is proved."""

    output: str
    through: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"output {self.output!r} is the same on all inputs in the original, and {self.reason}"
        if not self.through:
            return f"{self.output} is the same on all inputs, and both models compute it by the same operators"
        return f"{self.output} is the same on all inputs; the values before it agree: {_listed(self.through)}"


def examine(
    original: ModelFile,
    optimised: ModelFile,
    outputs: Iterable[str],
    deployment: Deployment,
    feeds: Sequence[FeedSpec],
    tolerance: float,
    timeout_s: float,
) -> list[Hidden]:
    """Return what the values before each of these outputs of both models tell."""
    found = {name: _same_operators(original, optimised, name, frozenset()) for name in outputs}
    open_ones = [name for name, hidden in found.items() if hidden is None]
    if open_ones:
        try:
            probes = _probe(original, optimised, open_ones, deployment, feeds[:_INPUTS], tolerance, timeout_s)
        except ComparisonError as error:
            found.update((name, Hidden(name, reason=f"its inner values cannot be read: {error}")) for name in open_ones)
        else:
            found.update((name, _judge(original, optimised, name, probes, tolerance)) for name in open_ones)
    return [hidden for hidden in found.values() if hidden is not None]


def _judge(original: ModelFile, optimised: ModelFile, output: str, probes: Sequence[Probe], tolerance: float) -> Hidden:
    changing = {probe.name: not probe.tells_nothing for probe in probes}
    agreeing = {p.name: p.counterpart for p in probes if changing[p.name] and not p.problem and p.error <= tolerance}
    last = _last_changing(original, output, changing)
    if last is not None and last <= set(agreeing) and _is_cut(optimised, output, set(agreeing.values())):
        return Hidden(output, tuple(sorted(last)) or (output,))
    named = frozenset(name for name, counterpart in agreeing.items() if name == counterpart)
    if (same := _same_operators(original, optimised, output, named)) is not None:
        return same
    bad = [probe for probe in probes if changing[probe.name] and probe.counterpart and probe.name not in agreeing]
    if bad:
        worst = max(bad, key=lambda probe: probe.error)
        how = worst.problem or f"differs by {worst.error:.2g} of its scale"
        return Hidden(output, reason=f"the value {worst.name!r} before it {how}")
    return Hidden(output, reason="no value before it that both models have tells whether they compute the same")


def _last_changing(side: ModelFile, output: str, changing: Mapping[str, bool]) -> frozenset[str] | None:
    """Return the names of the last values before an output that change from input to input; None where that cannot be
    told of some value."""
    found, stack, seen = set[str](), _operands(side.graph, side.value_of(output)), set[int]()
    while stack:
        value = stack.pop()
        if value in seen or value in side.graph.constants:
            continue
        seen.add(value)
        name = side.graph.names.get(value, "")
        if name not in changing or (value in side.graph.inputs and not changing[name]):
            return None
        if changing[name]:
            found.add(name)
        else:
            stack += _operands(side.graph, value)
    return frozenset(found)


def _is_cut(side: ModelFile, output: str, agreed: Collection[str]) -> bool:
    """Return whether an output is computed from constants and from values of these names alone."""
    stack, seen = _operands(side.graph, side.value_of(output)), set[int]()
    while stack:
        value = stack.pop()
        if value in seen or value in side.graph.constants or side.graph.names.get(value) in agreed:
            continue
        seen.add(value)
        if value in side.graph.inputs:
            return False
        stack += _operands(side.graph, value)
    return True


def _operands(graph: Graph, value: int) -> list[int]:
    """Return the values that a value is computed from; none where only their shapes matter."""
    node = graph.node_of(value)
    if node is None:
        return [value] if value in graph.inputs else []
    return [] if node.op in _SHAPE_ONLY else [operand for operand in node.inputs if operand is not None]


def _same_operators(original: ModelFile, optimised: ModelFile, output: str, agreed: frozenset[str]) -> Hidden | None:
    """Return the outcome for an output that both models compute by the same operators from values that agree; None for
    any other."""
    reached = set[str]()
    keys = [_key(side, output, agreed, reached) for side in (original, optimised)]
    return Hidden(output, tuple(sorted(reached))) if keys[0] == keys[1] else None


def _key(side: ModelFile, output: str, agreed: frozenset[str], reached: set[str]) -> str:
    """Return a digest of how an output is computed from values that agree, and collect those values."""
    graph, root = side.graph, side.value_of(output)
    keys: dict[int, str] = {}
    inner = _between(side, root, agreed)
    for value in inner:
        name = graph.names.get(value, "")
        if value in graph.constants:
            keys[value] = graph.constants[value].digest
        elif value in graph.inputs:
            stored = graph.stored.get(value)
            keys[value] = f"in:{name}:{stored.digest if stored else ''}"
        elif value in graph.stored:
            keys[value] = graph.stored[value].digest
        elif value != root and name in agreed:
            keys[value] = f"agreed:{name}"
            reached.add(name)
    for node in graph.order():
        if any(value in inner and value not in keys for value in node.outputs):
            parts = ["-" if value is None else keys.get(value, "free") for value in node.inputs]
            key = application_hash(node.signature, len(node.outputs), parts)
            keys.update((value, f"{key}:{i}") for i, value in enumerate(node.outputs) if value not in keys)
    return keys.get(root, "free")


def _between(side: ModelFile, root: int, agreed: frozenset[str]) -> set[int]:
    """Return the values between an output and the values that agree, both included."""
    seen, stack = {root}, [root]
    while stack:
        value = stack.pop()
        if value != root and side.graph.names.get(value) in agreed:
            continue
        node = side.graph.node_of(value)
        operands = [] if node is None else [operand for operand in node.inputs if operand is not None]
        stack += [operand for operand in operands if operand not in seen]
        seen.update(operands)
    return seen


def _probe(
    original: ModelFile,
    optimised: ModelFile,
    outputs: Sequence[str],
    deployment: Deployment,
    feeds: Sequence[FeedSpec],
    tolerance: float,
    timeout_s: float,
) -> list[Probe]:
    before, after = (_ancestors(side, outputs) for side in (original, optimised))
    with scratch_folder("probe") as folder:
        request = {
            "kind": "probe",
            **_with_outputs("original", original.path, before, Path(folder)),
            **_with_outputs("optimised", optimised.path, after, Path(folder)),
            "deployment": deployment.to_request(),
            "feeds": [spec.to_json() for spec in feeds],
            "original_values": before,
            "optimised_values": after,
            "tolerance": tolerance,
        }
        return [Probe(**probe) for probe in run_comparison(request, timeout_s)["probes"]]


def _ancestors(side: ModelFile, outputs: Sequence[str]) -> list[str]:
    """Return the names of the last values that the outputs are computed from, as many as there is room for."""
    wanted = set[int]()
    for output in outputs:
        wanted |= _between(side, side.value_of(output), frozenset()) - {side.value_of(output)}
    found, room = [], _PROBED_BYTES
    for node in reversed(side.graph.order()):
        for value in node.outputs:
            type, name = side.graph.types.get(value), side.graph.names.get(value, "")
            if value in wanted and name and not name.startswith("\0") and type is not None and type.dtype in _BYTES:
                room -= type.size * _BYTES[type.dtype]
                if room >= 0:
                    found.append(name)
    return found


def _with_outputs(side: str, path: Path, names: Iterable[str], folder: Path) -> dict[str, str]:
    """Write the model without its external weights, with these values as outputs too. Return the copy, and the folder
    of its weights, by their names in a request."""
    copy = folder / side
    model = onnx.load(path, load_external_data=False)
    known = {output.name for output in model.graph.output}
    for name in names:
        if name not in known:
            model.graph.output.add(name=name)
    weights = follow_links(model, path.parent)
    copy.write_bytes(model.SerializeToString())
    return {side: str(copy), f"{side}_folder": str(weights)}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
