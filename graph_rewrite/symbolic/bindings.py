"""Bindings: the sizes that symbolic dimensions have while a model is searched, from `--shape` or chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graph_rewrite.delivery.acceptance import refusals
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.custom_domains import require_operators
from graph_rewrite.onnx_files.model_file import check_openable
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.runtime import Deployment
from graph_rewrite.symbolic.choices import Role, default_values, role_of
from graph_rewrite.symbolic.feeds import NoFeedsError, write_feeds
from graph_rewrite.symbolic.inputs import SymbolicInputs, symbolic_inputs
from graph_rewrite.system.scratch import scratch_folder
from graph_rewrite.task.models import parse_shapes

AUTO = "auto"
"""The text of `--shape` that leaves the choice to us."""
TRIAL_S = 60.0
"""Most seconds for trying which of the usual shapes a model accepts."""


@dataclass(frozen=True)
class DimensionBindings:
    """The sizes of a model's symbolic dimensions: those that the search is for, and others that were asked for."""

    inputs: SymbolicInputs
    values: tuple[Mapping[str, int], ...]
    """Values of all symbols per binding; the search is for the first. One empty mapping for a static model."""
    note: str = ""
    """A sentence about what was chosen; empty where nothing was."""
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs whose number of dimensions is open."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes that the search is for, of the inputs with symbolic dimensions."""
        return {**self.inputs.shapes(self.values[0]), **self.given}


def parse_bindings(texts: Iterable[str]) -> list[dict[str, tuple[int, ...]]]:
    """Return shapes by input, a mapping per binding, out of texts such as `ids:1,128`. The first text of each input
    belongs to the first binding, the second to the second.

    Raises:
        UserError: a text that is neither `auto` nor of that form.
    """
    found: list[dict[str, tuple[int, ...]]] = []
    for text in texts:
        if text.strip() == AUTO:
            continue
        ((name, shape),) = parse_shapes([text]).items()
        place = next((binding for binding in found if name not in binding), None)
        if place is None:
            place = {}
            found.append(place)
        place[name] = shape
    return found


def bind(path: Path, texts: Sequence[str] = (), deployment: Deployment | None = None) -> DimensionBindings:
    """Choose the sizes of a model's symbolic dimensions: those that texts of `--shape` give, and for what they leave
    open the usual ones that the model accepts.

    Raises:
        UserError: shapes that contradict the model, no usual shape that it accepts, or an operator that ONNX Runtime
            does not know with the libraries of the deployment.
        ModelLoadError: not a readable ONNX model.
    """
    check_openable(path)
    graph, deployment = load_once(path), deployment or Deployment()
    require_operators(graph, deployment.custom_ops)
    inputs = symbolic_inputs(graph)
    texts_read = [_known(inputs, binding) for binding in parse_bindings(texts)]
    if inputs.open and texts_read:
        opened = {name: shape for name, shape in texts_read[0].items() if name in inputs.open}
        return DimensionBindings(inputs, (_first(inputs, texts_read),), given=opened)
    values = _first(inputs, texts_read)
    if inputs.is_static or inputs.open:
        return DimensionBindings(inputs, (values,))
    note = ""
    if left := [symbol for symbol in inputs.symbols if symbol not in values]:
        values = _accepted(path, graph, inputs, values, deployment)
        note = _sentence(inputs, values, left)
    others = [{**values, **inputs.values(binding)} for binding in texts_read[1:]]
    return DimensionBindings(inputs, (values, *others), note)


def _known(inputs: SymbolicInputs, binding: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
    for name in binding:
        if name not in inputs.dims and name not in inputs.open:
            names = ", ".join((*inputs.dims, *sorted(inputs.open)))
            raise UserError(f"--shape {name}: there is no such input; the inputs are {names}")
    return binding


def _first(inputs: SymbolicInputs, given: Sequence[Mapping[str, tuple[int, ...]]]) -> Mapping[str, int]:
    """Return the values of symbols that the first binding gives; those of models with open inputs are usual ones where
    it does not."""
    shapes = {name: shape for name, shape in (given[0] if given else {}).items() if name in inputs.dims}
    values = inputs.values(shapes)
    return default_values(inputs, values)[0] if inputs.open and inputs.symbols else values


def _accepted(
    path: Path, graph: Graph, inputs: SymbolicInputs, given: Mapping[str, int], deployment: Deployment
) -> Mapping[str, int]:
    """Return the first of the usual values that the model runs with."""
    tried = default_values(inputs, given)
    with scratch_folder("shapes") as folder:
        try:
            feeds = [write_feeds(graph, inputs, inputs.shapes(values), folder, 0) for values in tried]
        except NoFeedsError as error:
            raise UserError(f"{path}: {error}; give the shapes by --shape NAME:1,128") from error
        reasons = refusals(path, feeds, deployment, folder, TRIAL_S)
    for values, refused in zip(tried, reasons, strict=True):
        if not refused:
            return values
    listed = "; ".join(f"{name} [{', '.join(map(str, dims))}]" for name, dims in inputs.dims.items())
    flags = " ".join(f"--shape {name}:{','.join(map(str, s))}" for name, s in inputs.shapes(tried[0]).items())
    raise UserError(
        f"{path}: the model runs with none of the usual shapes ({reasons[0]}). Its inputs are {listed}; say which"
        f" shape to optimise for, such as {flags}"
    )


def _sentence(inputs: SymbolicInputs, values: Mapping[str, int], chosen: Sequence[str]) -> str:
    parts = []
    for symbol in chosen:
        role = role_of(symbol, inputs.symbols[symbol])
        parts.append(
            f"{symbol}={values[symbol]} (as a {role.label})"
            if role is not Role.BATCH
            else f"{symbol}={values[symbol]} (as the batch)"
        )
    return f"the search is for {', '.join(parts)}, since no --shape says otherwise"
