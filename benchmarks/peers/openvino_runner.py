"""Models in OpenVINO on the CPU, as contestants. Importing it imports OpenVINO.

The contestant's option `outputs` names the outputs in the original's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import openvino

from benchmarks.protocol.contestants import Array, Contestant, as_arrays
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment
from graph_rewrite.runtime.ort_worker.runtimes.openvino_runtime import settings_of


class OpenVinoRunner:
    """A model compiled as the deployment to OpenVINO compiles it; its outputs are not copied."""

    def __init__(self, path: Path, outputs: list[str], threads: int) -> None:
        core, settings = openvino.Core(), settings_of(Deployment("openvino", threads))
        compiled = core.compile_model(core.read_model(path), "CPU", settings)
        self._inputs = frozenset(name for each in compiled.inputs for name in each.get_names())
        self._outputs = [compiled.output(name) for name in outputs]
        self._request = compiled.create_infer_request()

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs, which the next run overwrites; inputs that nothing reads are left out."""
        if len(feeds) > len(self._inputs):
            feeds = {name: value for name, value in feeds.items() if name in self._inputs}
        found = self._request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return as_arrays([found[output] for output in self._outputs])


def open_runner(contestant: Contestant, threads: int) -> OpenVinoRunner:
    """Open a contestant's file in OpenVINO.

    Raises:
        UserError: the contestant has no file.
        RuntimeError: OpenVINO cannot read or compile it.
    """
    if contestant.path is None:
        raise UserError(f"contestant {contestant.name}: names no model file")
    return OpenVinoRunner(contestant.path, contestant.options["outputs"], threads)
