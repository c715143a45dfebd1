"""E-graphs as files in the JSON format of egraph-serialize (https://github.com/egraphs-good/egraph-serialize), which
egg, egglog and the extraction gym read and write.

`{"nodes": {id: {"op", "children", "eclass", "cost", "subsumed"}}, "root_eclasses": [...], "class_data": {...}}`:
children are ids of e-nodes and stand for their classes; a cost left out is 1; subsumed e-nodes are not extracted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph_rewrite.egraph.costs.node_costs import NodeCost, cost_of, unit_cost
from graph_rewrite.egraph.extract.costed import CostedEGraph
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.errors import UserError
from graph_rewrite.ir.attributes import AttrValue, RawAttr
from graph_rewrite.ir.constants import Constant
from graph_rewrite.system.atomic_files import replace_file


class EGraphFileError(UserError):
    """A file is not an e-graph in this format; the message says what is wrong and where."""


def load_costed(path: str | os.PathLike[str]) -> CostedEGraph:
    """Read a file to extract from. Classes are numbered in the order in which the file names them.

    Raises:
        EGraphFileError: the file cannot be read, is no JSON, or does not follow the format.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EGraphFileError(f"{path} cannot be read: {error}") from error
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise EGraphFileError(f"{path} is not JSON: {error}; is the file complete?") from error
    try:
        return costed_from(document)
    except EGraphFileError as error:
        raise EGraphFileError(f"{path}: {error}") from error


def costed_from(document: Any) -> CostedEGraph:
    """The arrays of a document in this format.

    Raises:
        EGraphFileError: the document does not follow the format.
    """
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), dict):
        raise EGraphFileError('there is no object "nodes": an e-graph in the format of egraph-serialize has one')
    entries: dict[str, Any] = document["nodes"]
    classes: dict[str, int] = {}
    for name, entry in entries.items():
        classes.setdefault(_class_name(name, entry), len(classes))
    kept = [name for name, entry in entries.items() if not entry.get("subsumed", False)]
    position = {name: i for i, name in enumerate(kept)}
    members: list[list[int]] = [[] for _ in classes]
    for name in kept:
        members[classes[str(entries[name]["eclass"])]].append(position[name])
    children = [_children(name, entries, classes) for name in kept]
    costs = [_cost(name, entries[name]) for name in kept]
    return CostedEGraph(costs, children, members, _roots(document, classes), kept)


def _class_name(name: str, entry: Any) -> str:
    if not isinstance(entry, dict):
        raise EGraphFileError(f"e-node {name!r} is not an object")
    if not isinstance(entry.get("op"), str):
        raise EGraphFileError(f'e-node {name!r} has no "op"')
    if not isinstance(entry.get("eclass"), str):
        raise EGraphFileError(f'e-node {name!r} has no "eclass"')
    return str(entry["eclass"])


def _children(name: str, entries: Mapping[str, Any], classes: Mapping[str, int]) -> tuple[int, ...]:
    listed = entries[name].get("children", [])
    if not isinstance(listed, list):
        raise EGraphFileError(f'"children" of e-node {name!r} is not a list')
    for child in listed:
        if not isinstance(child, str) or child not in entries:
            raise EGraphFileError(f"e-node {name!r} has the child {child!r}, and there is no such e-node")
    return tuple(classes[str(entries[child]["eclass"])] for child in listed)


def _cost(name: str, entry: Mapping[str, Any]) -> float:
    cost = entry.get("cost", 1.0)
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise EGraphFileError(f'"cost" of e-node {name!r} is not a number: {cost!r}')
    if not (math.isfinite(cost) and cost >= 0):
        raise EGraphFileError(f"e-node {name} costs {float(cost)}: costs must be finite and not negative")
    return float(cost)


def _roots(document: Mapping[str, Any], classes: Mapping[str, int]) -> tuple[int, ...]:
    roots = document.get("root_eclasses", [])
    if not isinstance(roots, list) or not roots:
        raise EGraphFileError('"root_eclasses" names no class: add the classes that must be extracted')
    unknown = [root for root in roots if not isinstance(root, str) or root not in classes]
    if unknown:
        raise EGraphFileError(f'"root_eclasses" names {unknown[0]!r}, and no e-node lies in such a class')
    return tuple(dict.fromkeys(classes[root] for root in roots))


def to_document(egraph: EGraph, cost: NodeCost = unit_cost) -> dict[str, Any]:
    """An e-graph in this format; `class_data` holds the types. Operands left out are not written."""
    nodes: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for cls in egraph.classes():
        members = egraph.members(cls)
        for i, node in enumerate(members):
            nodes[f"{cls}.{i}"] = {
                "op": _label(egraph, node),
                "children": [f"{arg}.0" for arg in egraph.args(node) if arg >= 0],
                "eclass": str(cls),
                "cost": cost_of(egraph, node, cost),
                "subsumed": False,
            }
        type = egraph.types[cls]
        if type is not None:
            data[str(cls)] = {"type": str(type)}
    roots = dict.fromkeys(str(cls) for cls in egraph.canonical_roots())
    return {"nodes": nodes, "root_eclasses": list(roots), "class_data": data}


def save(egraph: EGraph, path: str | os.PathLike[str], cost: NodeCost = unit_cost) -> Path:
    """Write an e-graph in this format, atomically."""
    path = Path(path)
    replace_file(path, json.dumps(to_document(egraph, cost)))
    return path


def _label(egraph: EGraph, node: int) -> str:
    operator = egraph.operator(node)
    if operator.kind == "constant":
        return f"Constant {egraph.constants[egraph.find(node)].digest}"
    name = f"{operator.domain}::{operator.op}" if operator.domain else operator.op
    attrs = ", ".join(f"{key}={_text(operator.attrs[key])}" for key in sorted(operator.attrs))
    return f"{name}[{attrs}]" if attrs else name


def _text(value: AttrValue) -> str:
    if isinstance(value, Constant):
        return value.digest
    return f"{len(value.data)} bytes" if isinstance(value, RawAttr) else repr(value)
