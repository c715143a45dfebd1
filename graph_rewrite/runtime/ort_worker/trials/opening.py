"""A process that opens model files one after another: `python -m ort_worker.trials.opening`, started by
`graph_rewrite.runtime.opening` as a process of its own, because a model may crash ONNX Runtime.

It writes a line `opens` or `refused` per file, and ends after the first that opens.
"""

from __future__ import annotations

import sys

import onnxruntime as ort

from ..following import follow

_FATAL_ONLY = 4


def main(paths: list[str]) -> int:
    follow()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    for path in paths:
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
