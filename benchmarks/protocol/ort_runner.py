"""Models in ONNX Runtime, as contestants: an optimised file runs with the deployment that it records, any other with
all of ONNX Runtime's optimisers.

Options of the contestant, all of them optional:

- `deployment`: a deployment as `Deployment.to_json` writes it, instead of the recorded one;
- `plain`: true to ignore the recorded deployment;
- `provider`: `cpu` or `cuda`, and `optimization_level`: `none`, `basic`, `extended` or `all`, instead of those of the
  deployment;
- `outputs`: names of the outputs, in the order of the original's; by default all outputs of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from benchmarks.protocol.contestants import Array, Contestant, as_arrays
from graph_rewrite.delivery.deployed import METADATA_KEY, recorded_deployment, sidecar_of
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment, open_session

MODULE = __name__
_CHANGES = ("provider", "optimization_level")
_OPTIONS = frozenset({"deployment", "plain", "outputs", *_CHANGES})


class OrtRunner:
    """A session of ONNX Runtime. Its threads stop spinning when a run ends, since contestants run in turn."""

    def __init__(self, path: Path, deployment: Deployment, outputs: list[str] | None = None) -> None:
        self.deployment = deployment
        self._session = open_session(path, deployment, measuring=True)
        self._inputs = frozenset(item.name for item in self._session.get_inputs())
        self._outputs = outputs or [item.name for item in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs; inputs that the file has not, because nothing reads them any more, are left out."""
        if len(feeds) > len(self._inputs):
            feeds = {name: value for name, value in feeds.items() if name in self._inputs}
        return as_arrays(self._session.run(self._outputs, dict(feeds)))


def open_runner(contestant: Contestant, threads: int) -> OrtRunner:
    """Open a contestant's file in ONNX Runtime.

    Raises:
        UserError: the contestant has no file or an option that is unknown, or its deployment cannot be read.
        RuntimeError: as `graph_rewrite.runtime.open_session`.
    """
    if contestant.path is None:
        raise UserError(f"contestant {contestant.name}: names no model file")
    unknown = sorted(contestant.options.keys() - _OPTIONS)
    if unknown:
        raise UserError(f"contestant {contestant.name}: no option {', '.join(unknown)}; there are {sorted(_OPTIONS)}")
    return OrtRunner(contestant.path, deployment_for(contestant, threads), contestant.options.get("outputs"))


def deployment_for(contestant: Contestant, threads: int) -> Deployment:
    """Return the deployment that a contestant asks for, or that its file records; a recorded number of threads counts.

    Raises:
        UserError: the recorded deployment cannot be read.
    """
    options: Mapping[str, Any] = contestant.options
    path = contestant.path
    if "deployment" in options:
        deployment = Deployment.from_json(options["deployment"])
    elif path is not None and not options.get("plain") and _records_deployment(path):
        deployment = recorded_deployment(path)
    else:
        deployment = Deployment(threads=threads)
    return replace(deployment, **{name: options[name] for name in _CHANGES if name in options})


def _records_deployment(path: Path) -> bool:
    if sidecar_of(path).is_file():
        return True
    metadata = onnx.load(str(path), load_external_data=False).metadata_props
    return any(entry.key == METADATA_KEY for entry in metadata)
