"""A process that opens model files one after another: `python -m ort_worker.trials.opening`, started by
`graph_rewrite.runtime.opening` as a process of its own, because a model may crash ONNX Runtime.

It writes a line `opens` or `refused` per file, and ends after the first that opens. Arguments `--library=PATH` before
the files name libraries of custom operators.
"""

from __future__ import annotations

import sys

import onnxruntime as ort

from ..following import follow

LIBRARY = "--library="
"""What the path of a library of operators begins with among the arguments."""
_FATAL_ONLY = 4


def main(arguments: list[str]) -> int:
    """Open files until one opens; a library that cannot be loaded ends the process with an error."""
    follow()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    for argument in arguments:
        if argument.startswith(LIBRARY):
            options.register_custom_ops_library(argument.removeprefix(LIBRARY))
    for path in (argument for argument in arguments if not argument.startswith(LIBRARY)):
        try:
            ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception:  # ONNX Runtime raises its own classes, which differ from version to version
            print("refused", flush=True)
        else:
            print("opens", flush=True)
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
