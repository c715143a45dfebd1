"""Default values of attributes: a node that spells a default out computes the same as one that leaves it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any

import onnx

IMAGE_OPERATORS = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool"})
"""Operators on images, whose attributes per axis have a default that depends on the number of axes."""
_ALONG_AXES = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
"""What each element of these attributes is where the operators on images have none. Schemas cannot say it, as its
length is the number of axes."""


def is_default(op: str, domain: str, name: str, value: Any) -> bool:
    """Tell whether a node computes the same without this attribute, by every version of its operator."""
    if domain:
        return False
    # By their text: 0.0 and -0.0 are equal, and so are 1 and 1.0.
    return repr(value) == _defaults().get(op, {}).get(name) or is_implied(op, name, value)


def is_implied(op: str, name: str, value: Any) -> bool:
    """Tell whether an attribute of a standard operator on images only repeats what its operands imply.

    Unlike other defaults, it is another value for operands of other shapes.
    """
    if op not in IMAGE_OPERATORS:
        return False
    if name == "kernel_shape":  # a convolution has it from its weights
        return op in ("Conv", "ConvTranspose")
    return isinstance(value, tuple) and name in _ALONG_AXES and set(value) == {_ALONG_AXES[name]}


@cache
def _defaults() -> Mapping[str, Mapping[str, str]]:
    """Return the text of the default of each attribute of each standard operator, where all versions that have the
    attribute agree on it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            for name, attribute in schema.attributes.items():
                found[schema.name][name].add(_text(attribute.default_value))
    return {
        op: {name: texts.copy().pop() for name, texts in attributes.items() if len(texts) == 1 and texts != {""}}
        for op, attributes in found.items()
    }


def _text(default: onnx.AttributeProto) -> str:
    if not default.name:
        return ""
    value = onnx.helper.get_attribute_value(default)
    if isinstance(value, bytes):
        value = value.decode()
    elif not isinstance(value, (int, float, str)):
        return ""
    return repr(value)
