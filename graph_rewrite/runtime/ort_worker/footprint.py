"""A process that opens a model and runs it once: `python -m ort_worker.footprint`, started by
`graph_rewrite.delivery.footprint`, so that its memory is the model's and ONNX Runtime's.

Argument: a request (JSON) with `model`, `deployment`, `feeds`, and `shapes` of inputs by name.
Prints `{"load_s": ..., "peak_bytes": ...}`.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from pathlib import Path

from .deployment import Deployment
from .feeds import FeedSpec, ModelInput, make_feeds
from .following import follow
from .narrow_floats import runner
from .runtimes.opening import open_session


def peak_bytes() -> int:
    """Return the most memory that this process has held. The resource usage alone would count what the process that
    started this one held, too."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    if found is not None:
        return 1024 * int(found[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most) * (1 if sys.platform == "darwin" else 1024)


def main(arguments: list[str]) -> int:
    follow()
    request = json.loads(arguments[0])
    begin = time.perf_counter()
    session = open_session(request["model"], Deployment.from_request(request["deployment"]))
    load_s = time.perf_counter() - begin
    shapes = request["shapes"]
    inputs = [
        ModelInput(item.name, item.type, tuple(shapes.get(item.name, item.shape))) for item in session.get_inputs()
    ]
    runner(session, None, make_feeds(inputs, FeedSpec.from_json(request["feeds"])))()
    print(json.dumps({"load_s": load_s, "peak_bytes": peak_bytes()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
