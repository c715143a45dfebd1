"""The process in which a peer prepares a model: `python -m benchmarks.peers.preparation REQUEST`, started by
`benchmarks.peers.processes`."""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.errors import MissingPeer
from graph_rewrite.runtime.ort_worker.following import follow


def main(arguments: list[str]) -> int:
    """Carry out the request, a JSON object, and write its answer. An exception ends the process with its traceback."""
    request = json.loads(arguments[0])
    follow(request["parent"])
    # In a session of its own, it gets this signal from nobody but the parent, which means it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    module, _, function = request["task"].partition(":")
    answer: dict[str, Any]
    try:
        task = getattr(import_module(module), function)
        answer = {"made": task(Path(request["model"]), Path(request["folder"]), request["threads"])}
    except MissingPeer as error:
        answer = {"missing": str(error)}
    Path(request["answer"]).write_text(json.dumps(answer), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
