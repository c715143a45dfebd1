"""Digests that are the same in every process and on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def digest(*parts: object) -> str:
    """Return a stable 128-bit hexadecimal digest of strings and other values with a faithful `repr`."""
    return text_digest([part if isinstance(part, str) else repr(part) for part in parts])


def text_digest(texts: Iterable[str]) -> str:
    """Return the `digest` of strings."""
    return hashlib.blake2b(("\x1f".join(texts) + "\x1f").encode(), digest_size=16).hexdigest()


def application_hash(signature: str, outputs: int, inputs: Iterable[str]) -> str:
    """Return the digest of an operator applied to inputs with these digests. Output `i` then has the digest
    `<digest>:<i>`."""
    return hashlib.blake2b("|".join((signature, str(outputs), *inputs)).encode(), digest_size=16).hexdigest()
