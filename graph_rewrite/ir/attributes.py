"""Attributes of operators: their values, and the digest of an operator with its attributes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx

from graph_rewrite.ir.attribute_defaults import is_default
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.hashing import digest

AttrValue = Any  # int, float, str, bytes, tuple of int, float or str, Constant, or RawAttr


@dataclass(frozen=True, slots=True)
class RawAttr:
    """An attribute kept bit by bit: subgraphs, sparse tensors, references, type protos."""

    data: bytes

    def proto(self) -> onnx.AttributeProto:
        parsed: onnx.AttributeProto = onnx.AttributeProto.FromString(self.data)
        return parsed


def float32(value: float) -> float:
    """Return the nearest float32 as a Python float: ONNX stores float attributes so."""
    return float(np.float32(value))


def operator_signature(op: str, domain: str, attrs: Mapping[str, AttrValue]) -> str:
    """Return the digest of an operator and its attributes, without inputs and outputs. A default that is spelled out
    changes nothing."""
    # Not floats: 0.0 and -0.0 are equal, and so are 1 and 1.0.
    if not all(map(_is_plain, attrs.values())):
        return _signature(op, domain, attrs)
    return _plain_signature(op, domain, *attrs.items())


@lru_cache(maxsize=65536)
def _plain_signature(op: str, domain: str, *attrs: tuple[str, AttrValue]) -> str:
    return _signature(op, domain, dict(attrs))


def _signature(op: str, domain: str, attrs: Mapping[str, AttrValue]) -> str:
    told = sorted(name for name, value in attrs.items() if not is_default(op, domain, name, value))
    return digest(op, domain, *(f"{name}={_attr_token(attrs[name])}" for name in told))


def _is_plain(value: AttrValue) -> bool:
    kind = type(value)
    return kind is int or kind is str or (kind is tuple and all(type(item) is int for item in value))


def _attr_token(value: AttrValue) -> str:
    if isinstance(value, Constant):
        return f"tensor:{value.digest}"
    if isinstance(value, RawAttr):
        return f"raw:{hashlib.blake2b(value.data, digest_size=16).hexdigest()}"
    return f"{type(value).__name__}:{value!r}"
