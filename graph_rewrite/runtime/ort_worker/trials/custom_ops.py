"""A process that loads libraries of custom operators and looks for operators in them: `python -m
ort_worker.trials.custom_ops`, started by `graph_rewrite.runtime.custom_ops` as a process of its own, because a library
may do anything.

Arguments: a request (JSON) with the `libraries` and the `models` of one operator each, and a file for the findings, one
JSON object per line: `{"refused": ...}` per library, an empty text where it is loaded, then `{"known": ...}` per model.
It ends after the first library that is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnxruntime as ort

from ..following import follow

_FATAL_ONLY = 4
_UNKNOWN = "is not a registered function/op"


def main(arguments: list[str]) -> int:
    follow()
    request = json.loads(Path(arguments[0]).read_text("utf-8"))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    with Path(arguments[1]).open("w", encoding="utf-8") as out:
        for library in request["libraries"]:
            try:
                options.register_custom_ops_library(library)
            except Exception as error:  # ONNX Runtime raises its own classes, which differ from version to version
                out.write(json.dumps({"refused": " ".join(str(error).split())}) + "\n")
                return 0
            out.write(json.dumps({"refused": ""}) + "\n")
            out.flush()
        for model in request["models"]:
            known = True
            try:
                ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # of other kinds: the operator is there, and does not take these types
                known = _UNKNOWN not in str(error)
            out.write(json.dumps({"known": known}) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
