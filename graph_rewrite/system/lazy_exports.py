"""Public names of a package, each imported when it is first used (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def public_name(package: str, home: Mapping[str, str], name: str) -> Any:
    """Return what a package's `__getattr__` is asked for: a name that lives in another module, and is kept from now on.

    Args:
        package: the package's `__name__`. Its `__all__` lists what it offers.
        home: the module of each name that is imported late.

    Raises:
        AttributeError: the package has no such name; the message lists those that it has.
    """
    module = sys.modules[package]
    if name not in home:
        offered = ", ".join(module.__all__)
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {offered}")
    value = getattr(import_module(home[name]), name)
    setattr(module, name, value)
    return value
