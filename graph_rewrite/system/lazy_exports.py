"""Public names of a package, each imported when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` (PEP 562) for a package whose public names live in other modules.

    Args:
        package: the package's `__name__`. Its `__all__` lists what it offers.
        home: the module of each name that is imported late.
    """

    def get(name: str) -> Any:
        module = sys.modules[package]
        if name not in home:
            offered = ", ".join(module.__all__)
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {offered}")
        value = getattr(import_module(home[name]), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        module = sys.modules[package]
        return sorted({*vars(module), *module.__all__})

    return get, names
