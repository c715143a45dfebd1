"""The kernels of ONNX Runtime's CPU provider, as this build of it lists them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from onnxruntime.capi import onnxruntime_pybind11_state

_OPEN_END = 2**31 - 1


class RegisteredKernel(NamedTuple):
    """A kernel: the versions of its operator, from `first` to `last`, and the types that it takes for each type
    parameter of the operator's schema, written `tensor(float)`."""

    first: int
    last: int
    types: Mapping[str, frozenset[str]]

    def implements(self, since: int) -> bool:
        """Tell whether the kernel runs the version of its operator that was defined in operator set `since`. A kernel
        without a last version runs the first one only: later versions may mean something else."""
        return self.first == since or (self.first < since <= self.last != _OPEN_END)

    def takes(self, types: Mapping[str, str]) -> bool:
        """Tell whether the kernel takes these types of parameters; those that are not given do not matter."""
        return all(types[name] in allowed for name, allowed in self.types.items() if name in types)


@functools.cache
def cpu_kernels() -> Mapping[str, tuple[RegisteredKernel, ...]] | None:
    """Return the kernels of the standard operators, by operator; None where this ONNX Runtime does not list them."""
    listed = getattr(onnxruntime_pybind11_state, "get_registered_ep_kernel_defs", None)
    if listed is None:
        return None
    try:
        definitions = listed("CPUExecutionProvider")
    except RuntimeError:  # it lists those of plugins alone
        return None
    return _by_operator(definitions) or None


def _by_operator(definitions: Iterable[Any]) -> dict[str, tuple[RegisteredKernel, ...]]:
    found: dict[str, tuple[RegisteredKernel, ...]] = {}
    for each in definitions:
        if each.domain == "":
            types = {name: frozenset(allowed) for name, allowed in each.type_constraints.items()}
            first, last = each.version_range
            found[each.op_name] = (*found.get(each.op_name, ()), RegisteredKernel(first, last, types))
    return found
