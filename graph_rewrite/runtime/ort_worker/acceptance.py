"""A process that tries a model on inputs of several shapes: `python -m ort_worker.acceptance`, started by
`graph_rewrite.symbolic.acceptance` as a process of its own, because a model may crash ONNX Runtime.

Arguments: a request (JSON) and a file for what is found, one JSON object per line and input: `{"refused": ...}`, with
an empty text where the model runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .deployment import Deployment, open_session
from .feeds import FeedSpec, ModelInput, make_feeds


def main(arguments: list[str]) -> int:
    request, path = json.loads(arguments[0]), Path(arguments[1])
    session = open_session(request["model"], Deployment.from_json(request["deployment"]))
    inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    with path.open("w") as out:
        for spec in request["feeds"]:
            refused = ""
            try:
                session.run(None, make_feeds(inputs, FeedSpec.from_json(spec)))
            except Exception as error:  # whatever ONNX Runtime says about a shape is a refusal
                refused = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
            out.write(json.dumps({"refused": refused}) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
