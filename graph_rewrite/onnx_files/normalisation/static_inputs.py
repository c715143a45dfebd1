"""The check that all inputs have fixed shapes."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Outcome


class SymbolicShapeError(UserError):
    """Inputs have symbolic dimensions; the message names them and shows how to fix them."""


class StaticInputs:
    """Check that every input that is a tensor has a fixed shape; the graph stays as it is."""

    name = "static inputs"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph itself.

        Raises:
            SymbolicShapeError: an input has a dimension without a fixed size.
        """
        symbolic: dict[str, list[int | str]] = {}
        for info, value in zip(graph.header.graph.input, graph.inputs, strict=True):
            if graph.types[value] is None and info.type.HasField("tensor_type"):
                symbolic[info.name] = [
                    dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
                    for dim in info.type.tensor_type.shape.dim
                ]
        if symbolic:
            raise SymbolicShapeError(_message(symbolic))
        return Outcome(graph)


def _message(symbolic: dict[str, list[int | str]]) -> str:
    listed = "; ".join(f"{name} [{', '.join(map(str, dims))}]" for name, dims in symbolic.items())
    flags = " ".join(f"--shape {name}:{','.join(map(str, _suggested(dims)))}" for name, dims in symbolic.items())
    return (
        f"these inputs have no fixed shape: {listed}. A model is optimised and measured at one shape: set it, for"
        f" example {flags}"
    )


def _suggested(dims: Sequence[int | str]) -> list[int]:
    """Return a plausible shape: batch 1, 128 tokens, images of 224 by 224."""
    usual = {2: (1, 128), 4: (1, 3, 224, 224)}.get(len(dims), (1,) + (128,) * (len(dims) - 1))
    return [dim if isinstance(dim, int) else usual[i] for i, dim in enumerate(dims)]
