"""The block of ONNX Runtime's layout NCHWc on this CPU: 16 channels with AVX-512, 8 with AVX and SSE on x86."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime as ort

_CHANNELS = 4
# ir_version 10, opset 22 and com.microsoft.nchwc 1: ReorderInput(x) -> y, x of float32 [1, 4, 1, 1]. Serialised,
# because onnx is slow to import.
_REORDER = (
    b'\x08\n:Z\n)\n\x01x\x12\x01y"\x0cReorderInput:\x13com.microsoft.nchwc\x12\x05blockZ\x1b\n\x01x\x12\x16\n\x14\x08'
    b"\x01\x12\x10\n\x02\x08\x01\n\x02\x08\x04\n\x02\x08\x01\n\x02\x08\x01b\t\n\x01y\x12\x04\n\x02\x08\x01B\x04\n\x00"
    b"\x10\x16B\x17\n\x13com.microsoft.nchwc\x10\x01"
)


@functools.cache
def block_size() -> int:
    """Channels in a block on this CPU, as ONNX Runtime has it; 0 where it has no blocked layout here."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(_REORDER, options, providers=["CPUExecutionProvider"])
        found: int = session.run(None, {"x": np.zeros((1, _CHANNELS, 1, 1), np.float32)})[0].shape[1]
    except Exception:  # ONNX Runtime raises its own classes, which differ from version to version
        return 0
    return found if found > 1 else 0
