"""TASO's rule files (SOSP'19): a protobuf `RuleCollection` of rules, each two lists of operators and how their outputs
correspond.

Operator types and parameter keys are those of TASO's `ops.h`. An operand's `opId` below 0 names an input of the rule;
reading numbers inputs in the order of their first use. The kernel size of a convolution is not read,
as in TASO's own loader: a rule holds for any kernel. Writing puts 3x3.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.terms.canonical import normalised
from graph_rewrite.terms.rule_file import ACTIVATIONS, PADDINGS, RuleFileError, choice
from graph_rewrite.terms.substitution import (
    INPUT,
    SIGNATURES,
    MalformedTermError,
    Operand,
    Param,
    Side,
    Substitution,
    Term,
    term,
)

_TYPES = {
    3: "conv", 6: "maxpool", 7: "avgpool", 8: "relu", 9: "sigmoid", 10: "tanh", 12: "concat", 13: "split",
    15: "transpose", 16: "ewadd", 17: "ewmul", 18: "matmul", 19: "smul", 20: "enlarge", 22: "imatmul", 23: "iconv",
    24: "iewmul", 25: "cpool",
}  # fmt: skip
_CODES = {name: code for code, name in _TYPES.items()}

_INPUTS, _OUTPUTS, _KERNEL, _STRIDE, _PADDING, _ACTIVATION, _RANK, _AXIS, _PERM = 1, 2, (4, 5), (6, 7), 8, 9, 10, 11, 12
_SHUFFLE = 13


def read_taso(path: str | os.PathLike[str]) -> list[Substitution]:
    """Return the substitutions of a file, in its order.

    Raises:
        RuleFileError: no such file, no protobuf of this format, or an operator that is not known here.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RuleFileError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_taso(data, str(path))


def parse_taso(data: bytes, name: str = "rules") -> list[Substitution]:
    """Return the substitutions in the bytes of a file; `name` stands for it in errors.

    Raises:
        RuleFileError: as `read_taso`.
    """
    collection = _message("RuleCollection")
    try:
        collection.ParseFromString(data)
    except DecodeError as error:
        raise RuleFileError(f"{name}: not a protobuf of TASO's rules: {error}") from error
    if not collection.IsInitialized() or not collection.rule:
        raise RuleFileError(f"{name}: not a protobuf of TASO's rules, or one without rules")
    found = []
    for number, rule in enumerate(collection.rule):
        try:
            found.append(_substitution(rule))
        except MalformedTermError as error:
            raise RuleFileError(f"{name}: rule {number}: {error}") from error
    return found


def taso_bytes(substitutions: Iterable[Substitution]) -> bytes:
    """Return the substitutions as TASO's protobuf.

    Raises:
        RuleFileError: an operator or parameter that the format does not have (reshape).
    """
    collection = _message("RuleCollection")
    for number, substitution in enumerate(substitutions):
        rule = collection.rule.add()
        try:
            _write_side(rule.srcOp, substitution.source)
            _write_side(rule.dstOp, substitution.target)
        except MalformedTermError as error:
            raise RuleFileError(f"rule {number}, {substitution}: {error}") from error
        for before, after in zip(substitution.source.outputs, substitution.target.outputs, strict=True):
            if INPUT in (before.node, after.node):
                raise RuleFileError(f"rule {number}, {substitution}: the format has no outputs that are inputs")
            entry = rule.mappedOutput.add()
            entry.srcOpId, entry.dstOpId, entry.srcTsId, entry.dstTsId = (
                before.node, after.node, before.index, after.index,
            )  # fmt: skip
    data: bytes = collection.SerializeToString(deterministic=True)
    return data


def write_taso(substitutions: Iterable[Substitution], path: str | os.PathLike[str]) -> None:
    """Write substitutions as TASO's protobuf, atomically.

    Raises:
        RuleFileError: as `taso_bytes`.
    """
    replace_file(Path(path), taso_bytes(substitutions))


def _substitution(rule: Any) -> Substitution:
    if not rule.mappedOutput:
        raise MalformedTermError("no output is mapped")
    source, places = _read_terms(rule.srcOp, "source")
    target, target_places = _read_terms(rule.dstOp, "target")
    outputs, target_outputs = [], []
    for entry in rule.mappedOutput:
        outputs.append(_operand(entry.srcOpId, entry.srcTsId, places, rule.srcOp))
        target_outputs.append(_operand(entry.dstOpId, entry.dstTsId, target_places, rule.dstOp))
    return normalised(Substitution(Side(source, tuple(outputs)), Side(target, tuple(target_outputs))))


def _read_terms(operators: Sequence[Any], side: str) -> tuple[tuple[Term, ...], dict[int, int]]:
    """Terms in an order in which operands come first, and where each operator went."""
    terms: list[Term] = []
    places: dict[int, int] = {}
    pending = list(range(len(operators)))
    while pending:
        ready = [n for n in pending if all(t.opId < 0 or t.opId in places for t in operators[n].input)]
        if not ready:
            raise MalformedTermError(
                f"operator {pending[0]} of the {side} reads itself or an operator that is not there"
            )
        number = ready[0]
        pending.remove(number)
        inputs = [_operand(tensor.opId, tensor.tsId, places, operators) for tensor in operators[number].input]
        try:
            terms.append(_term(operators[number], inputs))
        except MalformedTermError as error:
            raise MalformedTermError(f"operator {number} of the {side}: {error}") from error
        places[number] = len(terms) - 1
    return tuple(terms), places


def _operand(node: int, index: int, places: Mapping[int, int], operators: Sequence[Any]) -> Operand:
    if node < 0:
        return Operand(INPUT, -1 - node)
    if node not in places:
        raise MalformedTermError(f"there is no operator {node}")
    name = _TYPES.get(operators[node].type, "")
    if name and not 0 <= index < SIGNATURES[name].outputs:
        raise MalformedTermError(f"operator {node}, {name}, has no output {index}")
    return Operand(places[node], index)


def _term(operator: Any, inputs: Sequence[Operand]) -> Term:
    name = _TYPES.get(operator.type)
    if name is None:
        raise MalformedTermError(f"unknown operator type {operator.type}")
    values = {entry.key: entry.value for entry in operator.para}

    def value(key: int, default: int | None = None) -> int:
        found = values.get(key, default)
        if found is None:
            raise MalformedTermError(f"{name} has no parameter {key}")
        return int(found)

    params: dict[str, Param] = {}
    for wanted in SIGNATURES[name].params:
        if wanted == "activation":
            params[wanted] = choice(ACTIVATIONS, value(_ACTIVATION, 0), "activation")
        elif wanted == "padding":
            params[wanted] = choice(PADDINGS, value(_PADDING), "padding")
        elif wanted in ("stride", "kernel"):
            keys = _STRIDE if wanted == "stride" else _KERNEL
            params[wanted] = (value(keys[0]), value(keys[1]))
        elif wanted == "perm":
            params[wanted] = _unpacked(value(_PERM), value(_RANK))
        else:
            params[wanted] = value(_AXIS if wanted == "axis" else _RANK)
    if (name == "concat" and value(_INPUTS, 2) != 2) or (name == "split" and value(_OUTPUTS, 2) != 2):
        raise MalformedTermError(f"a {name} of more than two tensors")
    if name == "transpose" and value(_SHUFFLE, 1) != 1:
        raise MalformedTermError("a transpose that does not move its elements")
    return term(name, *inputs, **params)


def _unpacked(code: int, rank: int) -> tuple[int, ...]:
    """A permutation out of TASO's number: its digits to the base of the rank, the first axis leading."""
    digits: list[int] = []
    for _ in range(rank):
        code, digit = divmod(code, rank)
        digits.insert(0, digit)
    if sorted(digits) != list(range(rank)) or code:
        raise MalformedTermError(f"{digits} is no permutation of {rank} axes")
    return tuple(digits)


def _write_side(operators: Any, side: Side) -> None:
    for node in side.terms:
        if node.op not in _CODES:
            raise MalformedTermError(f"TASO's format has no {node.op}")
        operator = operators.add()
        operator.type = _CODES[node.op]
        for source in node.inputs:
            tensor = operator.input.add()
            tensor.opId = -1 - source.index if source.node == INPUT else source.node
            tensor.tsId = 0 if source.node == INPUT else source.index
        for key, value in sorted(_parameters(node).items()):
            entry = operator.para.add()
            entry.key, entry.value = key, value


def _parameters(node: Term) -> dict[int, int]:
    values: dict[int, int] = {}
    if node.op == "conv":
        values.update(zip(_KERNEL, (3, 3), strict=True))
    if node.op == "concat":
        values[_INPUTS] = 2
    if node.op == "split":
        values[_OUTPUTS] = 2
    for name, value in node.params:
        if name == "activation":
            values[_ACTIVATION] = ACTIVATIONS.index(str(value))
        elif name == "padding":
            values[_PADDING] = PADDINGS.index(str(value))
        elif isinstance(value, tuple) and name in ("stride", "kernel"):
            values.update(zip(_STRIDE if name == "stride" else _KERNEL, value, strict=True))
        elif isinstance(value, tuple):
            values[_PERM] = sum(axis * len(value) ** (len(value) - 1 - i) for i, axis in enumerate(value))
            values[_RANK], values[_SHUFFLE] = len(value), 1
        else:
            values[_AXIS if name == "axis" else _RANK] = int(value)
    return values


_FIELDS: Mapping[str, Sequence[tuple[str, str, bool]]] = {
    "RuleCollection": [("rule", "Rule", True)],
    "Rule": [("srcOp", "Operator", True), ("dstOp", "Operator", True), ("mappedOutput", "MapOutput", True)],
    "Operator": [("type", "", False), ("input", "Tensor", True), ("para", "Parameter", True)],
    "Tensor": [("opId", "", False), ("tsId", "", False)],
    "Parameter": [("key", "", False), ("value", "", False)],
    "MapOutput": [("srcOpId", "", False), ("dstOpId", "", False), ("srcTsId", "", False), ("dstTsId", "", False)],
}
"""Fields (name, message or empty for int32, repeated) in the order of their numbers, from 1 on. Single ones are
required, so that other protobufs are recognised as such."""


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="taso_rules.proto", package="taso", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, 1):
            message.field.add(
                name=field, number=number, type=kinds.TYPE_MESSAGE if kind else kinds.TYPE_INT32,
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_REQUIRED,
                type_name=f".taso.{kind}" if kind else None,
            )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"taso.{name}"))()
