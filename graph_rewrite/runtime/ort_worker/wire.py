"""Length-prefixed JSON messages between a meter and its worker. Plain values only: nothing a reader would execute."""

from __future__ import annotations

import json
import struct
from typing import Any, Protocol

Message = dict[str, Any]

_LENGTH = struct.Struct(">I")


class Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class Writable(Protocol):
    def write(self, data: bytes, /) -> int | None: ...

    def flush(self) -> None: ...


def write_message(stream: Writable, message: Message) -> None:
    """Write one message and flush; raises OSError where the other side is gone."""
    body = json.dumps(message).encode()
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_message(stream: Readable) -> Message | None:
    """Return the next message, or None where the other side is gone, also in the middle of a message."""
    head = _read_exactly(stream, _LENGTH.size)
    if head is None:
        return None
    body = _read_exactly(stream, _LENGTH.unpack(head)[0])
    if body is None:
        return None
    message: Message = json.loads(body)
    return message


def _read_exactly(stream: Readable, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = stream.read(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
