"""Damage to models: to the bytes of a file, and to fields of a valid protobuf message."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 2, 3, 5, 16, 255, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
_FLOATS = (0.0, -1.0, 1.5, 1e38, -1e-40, float("inf"), float("nan"))
_TEXTS = ("", "x", "y", "w", "\0", "no such name", "é" * 3, "a" * 5000, "../../etc/passwd", "/dev/zero")
_RUNS = (1, 2, 7, 64)


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return a file with some bytes changed, removed, repeated or inserted, or cut short."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if not changed:
            break
        place, run = rng.randrange(len(changed)), rng.choice(_RUNS)
        match rng.randrange(6):
            case 0:
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del changed[place : place + run]
            case 3:
                changed[place:place] = rng.randbytes(run)
            case 4:
                changed[place:place] = changed[place : place + run]
            case _:
                if rng.random() < 0.2:
                    del changed[place:]
    return bytes(changed)


def damaged_fields(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Return a copy with some fields changed: numbers, names, repeated entries left out, doubled or swapped."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(copy))
        _damage(*rng.choice(places), rng)
    return copy


def _places(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Yield all fields that are set, inside all messages."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if _is_repeated(field) else [value]:
                yield from _places(inner)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _damage(message: Message, field: FieldDescriptor, rng: random.Random) -> None:
    if rng.random() < 0.08:
        message.ClearField(field.name)
    elif _is_repeated(field):
        _damage_list(getattr(message, field.name), field, rng)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if rng.random() < 0.3:
            message.ClearField(field.name)
    else:
        setattr(message, field.name, _other(field, getattr(message, field.name), rng))


def _damage_list(values: Any, field: FieldDescriptor, rng: random.Random) -> None:
    i, j = rng.randrange(len(values)), rng.randrange(len(values))
    is_message = field.type == FieldDescriptor.TYPE_MESSAGE
    match rng.randrange(4):
        case 0:
            del values[i]
        case 1:
            values.append(values[i])
        case 2 if is_message:
            first, second = (type(values[i])() for _ in range(2))
            first.CopyFrom(values[i])
            second.CopyFrom(values[j])
            values[i].CopyFrom(second)
            values[j].CopyFrom(first)
        case _ if not is_message:
            values[i] = _other(field, values[i], rng)


def _other(field: FieldDescriptor, old: Any, rng: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice((*_TEXTS, old + "_"))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return damaged_bytes(old, rng)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice(_FLOATS)
    least, most = _limits(field)
    return max(least, min(most, rng.choice((*_INTEGERS, old + 1, old - 1, old * 2))))


def _limits(field: FieldDescriptor) -> tuple[int, int]:
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_UINT32):
        return 0, 2**32 - 1
    wide = field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64)
    return (-(2**63), 2**63 - 1) if wide else (-(2**31), 2**31 - 1)
