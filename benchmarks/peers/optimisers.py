"""Optimisers of ONNX files, with their defaults: each reads the original and writes `optimised.onnx` into a folder.

They return the file's path and the names of its outputs, in the original's order. A library is imported when its
optimiser runs: each is optional.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

_FILE = "optimised.onnx"
_EXTERNAL_BYTES = 100 * 2**20
"""Bytes of weights from which they get a file of their own, as in the zoo's exports."""
_INLINE_BYTES = 1024
"""Smaller tensors stay in the model's file: shapes and scalars, which shape inference reads."""


def run_onnxsim(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """Simplify a model with onnxsim. Its own comparison with the original is left to the judge."""
    import onnxsim

    simplified, _ = onnxsim.simplify(str(model), check_n=0)
    return _written(model, simplified, folder)


def run_onnxslim(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """Slim a model with onnxslim."""
    import onnxslim

    return _written(model, onnxslim.slim(str(model)), folder)


def run_onnxscript(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """Optimise a model with onnxscript's optimizer: constant folding and its rewrite rules."""
    import onnxscript.optimizer

    return _written(model, onnxscript.optimizer.optimize(onnx.load(str(model))), folder)


def optimise_transformers(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """Optimise a model with ONNX Runtime's optimiser of transformers, for its default type of model, `bert`.

    ONNX Runtime's own optimisers are left to the session (`opt_level=0`): applied beforehand as well, they give files
    that some versions refuse to open.
    """
    from onnxruntime.transformers.optimizer import optimize_model

    return _written(model, optimize_model(str(model), model_type="bert", opt_level=0).model, folder)


def _written(original: Path, optimised: ModelProto, folder: Path) -> dict[str, Any]:
    """Write a model.

    Raises:
        ValueError: an output of the original is missing.
    """
    outputs = [value.name for value in onnx.load(str(original), load_external_data=False).graph.output]
    lost = sorted(set(outputs) - {value.name for value in optimised.graph.output})
    if lost:
        raise ValueError(f"the optimised model has no output {', '.join(lost)}")
    path = folder / _FILE
    for left in (path, path.with_name(f"{_FILE}.data")):  # of an earlier run: onnx appends to external data
        left.unlink(missing_ok=True)
    large = sum(len(tensor.raw_data) for tensor in optimised.graph.initializer) > _EXTERNAL_BYTES
    onnx.save(optimised, str(path), save_as_external_data=large, location=f"{_FILE}.data", size_threshold=_INLINE_BYTES)
    return {"path": str(path), "outputs": outputs}
