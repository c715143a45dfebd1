"""Registration of the environments with Gymnasium, at once or as soon as somebody imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ENVIRONMENTS = {
    "rewritegym/GraphRewrite-v0": "envs.graph_rewrite.env:GraphRewriteEnv",
    "rewritegym/EGraphRewrite-v0": "envs.egraph.env:EGraphRewriteEnv",
    "rewritegym/WindowRewrite-v0": "envs.window.env:WindowRewriteEnv",
    "rewritegym/WindowTable-v0": "envs.window.table_env:WindowTableEnv",
}
"""Entry points by the identifier of the environment."""


def register_environments() -> None:
    """Register the environments, now where Gymnasium is imported already, else right after it is imported.

    Gymnasium takes a tenth of a second to import, which the help does without.
    """
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


def _register() -> None:
    import gymnasium  # here, since it takes a tenth of a second

    for identifier, entry_point in ENVIRONMENTS.items():
        if identifier not in gymnasium.registry:
            gymnasium.register(id=identifier, entry_point=entry_point)


class _AfterGymnasium(MetaPathFinder):
    """Lets the other finders find Gymnasium, and registers the environments when it has been executed."""

    def __init__(self) -> None:
        self._asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium" or self._asking:
            return None
        self._asking = True  # the search below comes by here again
        try:
            spec = find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            # On the loader itself and not in one around it, which would hide what else loaders are asked for.
            vars(spec.loader)["exec_module"] = _then_register(spec.loader.exec_module)
        return spec


def _then_register(execute: Callable[[ModuleType], Any]) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        execute(module)
        _register()

    return exec_module
