"""Contestants: what is judged against an original model, and how it is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ORIGINAL = "original"
"""The name of the contestant that all others are compared with."""


class Runner(Protocol):
    """A model that is ready to run. A context that it holds ends with its process."""

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for these inputs, by the names of the original's inputs, in the order of the original's
        outputs. The outputs stay valid until the next run. The judge times this call."""
        ...


@dataclass(frozen=True)
class Contestant:
    """A model to be judged, as plain values: another process opens it.

    `name` tells the contestants of a judgement apart: `original`, `regional/0` (agent and seed), `openvino`. `module`
    is a Python module with `open_runner(contestant, threads) -> Runner`. `path` is the model's file, None where the
    module finds it by the `options`, which are values that JSON holds. `environment` has variables of its process that
    differ from those of the others.
    """

    name: str
    module: str
    path: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for another process."""
        path = None if self.path is None else str(self.path)
        return {
            "name": self.name, "module": self.module, "path": path, "options": dict(self.options),
            "environment": dict(self.environment),
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        path = None if values["path"] is None else Path(values["path"])
        return cls(values["name"], values["module"], path, values["options"], values["environment"])

    def open(self, threads: int) -> Runner:
        """Open the model in this process, with `threads` threads per inference.

        Raises:
            Exception: whatever the tool says that cannot open it.
        """
        runner: Runner = import_module(self.module).open_runner(self, threads)
        return runner


def check_plain(contestant: Contestant) -> Contestant:
    """Return a contestant that another process can be told of.

    Raises:
        TypeError: its options are no plain values.
    """
    json.dumps(contestant.to_json())
    return contestant


def as_arrays(values: Any) -> list[Array]:
    """Return outputs as arrays, in their order."""
    return [np.asarray(value) for value in values]
