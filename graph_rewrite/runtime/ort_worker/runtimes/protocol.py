"""The interface of a runtime: what meters, validation and `rewritegym.session` need of a library that runs models.

A module of this package holds an object `RUNTIME` with this interface. It imports its library in functions only, since
the library may be missing, and since a process that does not need it shall not load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ..deployment import Deployment
from ..sessions.protocol import ModelSession

Kernel = dict[str, Any]
"""A kernel in a profile: its `name`, `op`, median time per run in microseconds `us`, and the types of its operands and
results, `inputs` and `outputs`, as [element type, shape]."""


class Passes(NamedTuple):
    """The optimisers of a runtime that may be refused: those that change a model, and all that were run."""

    active: frozenset[str] = frozenset()
    registered: frozenset[str] = frozenset()


class ModelRuntime(Protocol):
    """A library that runs models. Whatever it raises about a model is a finding about that model."""

    def fault(self) -> str:
        """Return the reason why the library cannot be used here, with the remedy; empty where it can be."""
        ...

    def version(self) -> dict[str, str]:
        """Return the library's name and version, as measurements are told apart by; the library is not loaded for it
        where that can be avoided."""
        ...

    def open(
        self, path: str, deployment: Deployment, *, measuring: bool = False, weights: str | None = None
    ) -> ModelSession:
        """Open a model file.

        Args:
            measuring: several sessions are timed in turn, so that none may take cores while another runs.
            weights: the folder of the model's external data, where the file lies elsewhere.
        """
        ...

    def passes(self, path: str, deployment: Deployment) -> Passes:
        """Open a model file and return its optimisers; none where the runtime lets none be refused."""
        ...

    def write_optimised(self, path: str, deployment: Deployment, written: str) -> None:
        """Write what the runtime makes of a model, as an ONNX file. Raises NotImplementedError where it cannot."""
        ...

    def open_profiled(
        self, path: str, deployment: Deployment, folder: str
    ) -> tuple[ModelSession, Callable[[int], list[Kernel]]]:
        """Open a model file for a profile, whose files may lie in `folder`. Return the session, and a function that
        ends the profile and returns the kernels in the order in which they run, without the first so many runs."""
        ...

    def code(self, deployment: Deployment, model: str) -> dict[str, str]:
        """Return code by language (`python`, `cpp`, ...) that opens a model file with the library alone, as an object
        `session`."""
        ...
