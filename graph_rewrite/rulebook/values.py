"""Attributes and constants as short text, and text as HTML."""

from __future__ import annotations

from html import escape

from graph_rewrite.ir.attributes import AttrValue, RawAttr
from graph_rewrite.ir.constants import Constant

_READ = 64
"""Constants of more elements are shown by their type alone."""


def attribute_text(value: AttrValue) -> str:
    """Return an attribute's value as text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Constant):
        return constant_text(value)
    return "..." if isinstance(value, RawAttr) else str(value)


def constant_text(constant: Constant) -> str:
    """Return a constant's elements, where they are few and plain, else its type."""
    elements = constant.numpy().reshape(-1) if constant.type.size <= _READ else None
    if elements is None or not len(elements):
        return str(constant.type)
    if constant.type.size <= 6 and elements.dtype.kind in "iub":
        values = ", ".join(str(value) for value in elements.tolist())
        return f"[{values}]" if constant.type.rank else values
    if (elements == elements[0]).all():
        return f"{elements[0]:.4g}"
    return str(constant.type)


def escaped(text: str) -> str:
    """Return a text as HTML shows it. Names in models are arbitrary bytes: markup in them is escaped, and what is no
    printable character becomes U+FFFD."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
    return escape(shown)
