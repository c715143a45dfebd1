"""PyTorch module -> ONNX file, by PyTorch's own exporter."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx_ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import Tensor, nn

_OPSET = 20  # the first with Gelu; a widespread target, which rewriting may raise
_EXTERNAL_DATA_BYTES = 100 * 2**20  # larger weights get a file of their own
_INLINE_TENSOR_BYTES = 1024  # shapes and scalars stay in the model file, where shape inference finds them
_CHATTY_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def export_onnx(network: nn.Module, inputs: Mapping[str, Tensor], output_name: str, path: Path) -> None:
    """Write ``network`` as ONNX with fixed input shapes, weights above 100 MiB in ``path`` + ``.data``.

    The exporter's debugging metadata (stack traces, names of local files) is left out.

    Args:
        network: in evaluation mode; it is called with ``inputs`` as keyword arguments.
        inputs: example inputs by name, in the order of the graph's inputs.
        output_name: name of the only output.
        path: the file to write.
    """
    with _quiet():
        program = torch.onnx.export(
            network,
            kwargs=dict(inputs),
            input_names=list(inputs),
            output_names=[output_name],
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None, "torch.onnx.export returns a program if dynamo=True"
    model = ClearMetadataAndDocStringPass()(program.model).model
    tensors = [value.const_value for value in model.graph.initializers.values() if value.const_value is not None]
    large = sum(tensor.nbytes for tensor in tensors) > _EXTERNAL_DATA_BYTES
    onnx_ir.save(
        model,
        path,
        external_data=f"{path.name}.data" if large else None,
        size_threshold_bytes=_INLINE_TENSOR_BYTES,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide warnings about the exporter's internals and missing optional packages; errors are raised all the same."""
    loggers = [logging.getLogger(name) for name in _CHATTY_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
