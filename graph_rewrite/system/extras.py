"""Libraries that only parts of RewriteGym need, and the sentence that asks for them.

`pip install rewritegym` brings what optimising a model needs. Everything else comes with an *extra* of pyproject.toml,
such as `rewritegym[train]`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graph_rewrite.errors import UserError


class Library(NamedTuple):
    """A library by the name under which people know it, and the extra that brings it."""

    title: str
    extra: str


LIBRARIES: Mapping[str, Library] = {
    "torch": Library("PyTorch", "train"),
    "stable_baselines3": Library("Stable-Baselines3", "train"),
    "sb3_contrib": Library("sb3-contrib", "train"),
    "torch_geometric": Library("PyTorch Geometric", "train"),
    "tensorboard": Library("TensorBoard", "train"),
    "onnxscript": Library("ONNX Script", "train"),
    "matplotlib": Library("Matplotlib", "env"),
    "highspy": Library("HiGHS", "egraph"),
    "numba": Library("Numba", "egraph"),
    "z3": Library("z3", "verify"),
    "onnxsim": Library("onnxsim", "bench"),
    "onnxslim": Library("OnnxSlim", "bench"),
    "openvino": Library("OpenVINO", "openvino"),
}
"""The optional libraries by the name of their module."""
INCLUDES: Mapping[str, frozenset[str]] = {"train": frozenset({"env"}), "bench": frozenset({"env", "openvino", "train"})}
"""Extras that bring others with them."""


class MissingLibraryError(UserError, ImportError):
    """A library is needed that is not installed; the message names the command that installs it."""


def require(purpose: str, *modules: str) -> None:
    """Check that libraries are installed, without importing them.

    Args:
        purpose: what needs them, as the subject of a sentence: "Training".
        modules: names of modules in `LIBRARIES`.

    Raises:
        MissingLibraryError: some are not installed.
    """
    missing = [module for module in modules if not is_installed(module)]
    if missing:
        raise MissingLibraryError(_sentence(purpose, missing))


def explain_import_error(error: ImportError) -> str | None:
    """Return the sentence that asks for the library whose import failed; None where it is not an optional one."""
    module = (error.name or "").partition(".")[0]
    return _sentence("This command", [module]) if module in LIBRARIES else None


def is_installed(module: str) -> bool:
    """Return True where a library is installed; it is not imported."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _sentence(purpose: str, modules: Iterable[str]) -> str:
    libraries = [LIBRARIES[module] for module in modules]
    titles = [library.title for library in libraries]
    named = f"{', '.join(titles[:-1])} and {titles[-1]}" if len(titles) > 1 else titles[0]
    extras = dict.fromkeys(library.extra for library in libraries)
    chosen = [extra for extra in extras if not any(extra in INCLUDES.get(other, ()) for other in extras)]
    return f"{purpose} needs {named}: pip install 'rewritegym[{','.join(chosen)}]'"
