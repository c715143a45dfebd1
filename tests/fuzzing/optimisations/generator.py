"""Random valid models, from a `random.Random`: of a seed, or of Hypothesis, which then makes failing ones smaller."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import onnx

from tests.fuzzing.optimisations.builder import (
    BATCH,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOATS,
    HALF,
    INT32,
    INT64,
    UINT8,
    Array,
    Builder,
    Dim,
    Input,
    Unfit,
    Value,
)  # fmt: skip
from tests.fuzzing.optimisations.registry import STEPS, Step
from tests.fuzzing.optimisations.running import largest_magnitude, opened, run

for _module in ("elementwise", "layers", "movements", "reductions", "blocks", "control"):
    importlib.import_module(f"tests.fuzzing.optimisations.{_module}")  # they register their steps

_OPSETS = (23, 23, 23, 23, 22, 21, 20, 18, 17, 24)
_MOST_OUTPUTS = 4
_TRIES = 40
_LARGEST, _LARGEST_HALF = 2e4, 200.0


@dataclass(frozen=True)
class RandomModel:
    """A valid model, with what its inputs may hold."""

    proto: onnx.ModelProto
    inputs: tuple[Input, ...]
    float_types: Mapping[str, int]
    """Types of the float values outside branches, loops and functions, by name; constants included."""

    @property
    def is_symbolic(self) -> bool:
        return any(BATCH in given.value.shape for given in self.inputs)

    @property
    def operators(self) -> frozenset[str]:
        """The operators in it, those inside branches, loops and functions included."""
        bodies: list[Sequence[onnx.NodeProto]] = [self.proto.graph.node, *(f.node for f in self.proto.functions)]
        found = set[str]()
        for body in bodies:
            for node in body:
                if node.domain != "local":
                    found.add(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
                bodies += [attribute.g.node for attribute in node.attribute if attribute.HasField("g")]
        return frozenset(found)

    def feeds(self, seed: int, magnitude: float, batch: int = 1) -> dict[str, Array]:
        """Return random inputs: normal floats of a magnitude, booleans, and integers in their ranges."""
        rng = np.random.default_rng([seed, 77])
        return {given.value.name: _drawn(given, rng, magnitude, batch) for given in self.inputs}


def random_model(rng: random.Random) -> RandomModel:
    """Return a model of one to about twenty steps, which ONNX Runtime runs and whose values are finite."""
    while True:
        b = Builder(rng, _OPSETS[rng.randrange(len(_OPSETS))])
        _begin(b)
        for _ in range(b.choice((2, 3, 4, 5, 6, 8, 10))):
            _grow(b)
        if b.nodes and _opens_optimised(model := _telling(b)):
            return model


def _opens_optimised(model: RandomModel) -> bool:
    """Return whether ONNX Runtime opens a model as usual: its own optimisations fail on a few."""
    try:
        opened(model.proto, optimised=True)
    except RuntimeError:
        return False
    return True


def _telling(b: Builder) -> RandomModel:
    """Return the model with outputs that differ from input to input: of others no comparison tells anything."""
    model = _model(b, _outputs(b))
    session = opened(model.proto)
    one, other = (run(session, model.feeds(seed, 1.0, 2)) for seed in (2, 3))
    changing = [v for v in _outputs(b) if not np.array_equal(one[v.name], other[v.name], equal_nan=v.is_float)]
    return _model(b, changing) if changing and b.chance(0.9) else model


def _model(b: Builder, outputs: Sequence[Value]) -> RandomModel:
    types = {value.name: value.dtype for value in b.values if value.is_float}
    types |= {tensor.name: tensor.data_type for tensor in b.constants if tensor.data_type in FLOATS}
    return RandomModel(b.proto(outputs), tuple(b.inputs), types)


def models() -> st.SearchStrategy[RandomModel]:
    """Return a strategy for random models."""
    return st.randoms(use_true_random=False).map(random_model)


def _begin(b: Builder) -> None:
    """Add the inputs: an image, a sequence, token ids, a matrix, or several."""
    dtype = b.choice((FLOAT,) * 12 + (HALF, HALF, DOUBLE, DOUBLE))
    batch: Dim = BATCH if b.chance(0.12) else b.choice((1, 1, 1, 2))
    shapes: Sequence[tuple[Dim, ...]] = {
        "image": ((batch, b.choice((2, 3, 4, 8, 16)), *[b.choice((4, 6, 8, 9))] * 2),),
        "sequence": ((batch, b.choice((3, 4, 6)), b.choice((4, 6, 8))),) * b.choice((1, 2)),
        "matrix": ((batch if batch == BATCH else b.choice((1, 2, 4, 6)), b.choice((3, 4, 8))),) * b.choice((1, 2, 3)),
        "other": ((batch, *(b.choice((1, 2, 3, 4)) for _ in range(b.choice((0, 1, 2, 3, 4))))),),
        "tokens": (),
    }[b.choice(("image",) * 4 + ("sequence",) * 4 + ("matrix",) * 2 + ("other", "tokens", "tokens"))]
    for shape in shapes:
        b.input(dtype, shape)
    if not shapes:
        b.input(INT64, (batch, b.choice((3, 5))), 0, 11)
    if b.chance(0.15):
        kind = b.choice((INT64, INT32, UINT8, BOOL))
        b.input(kind, b.choice((shapes[0] if shapes else (batch, 3), (batch, 4))), 0, 9)


def _grow(b: Builder) -> None:
    """Add one step, or one that is repeated, at a value that it fits; nothing where none fits in a few tries."""
    for _ in range(_TRIES):
        try:
            with b.undone_where_unfit():
                x = b.pick(lambda value: True)
                fitting = [each for each in STEPS if each.fits(x)]
                chosen = _weighted(b, fitting)
                if b.chance(0.25):
                    _repeated(b, chosen, x)
                else:
                    chosen.make(b, x)
                _check(b)
            return
        except Unfit:
            continue


def _weighted(b: Builder, steps: Sequence[Step]) -> Step:
    at = b.rng.random() * sum(each.weight for each in steps)
    for each in steps:
        at -= each.weight
        if at <= 0.0:
            return each
    return steps[-1]


def _repeated(b: Builder, chosen: Step, x: Value) -> None:
    """Make the same choices in a step several times: one after the other, or side by side on one value."""
    seed, parallel, found = b.rng.getrandbits(32), b.chance(0.5), [x]
    outer = b.rng
    try:
        for _ in range(2 + outer.randrange(2)):
            b.rng = random.Random(seed)
            if not chosen.fits(start := x if parallel else found[-1]):
                raise Unfit("it cannot follow itself")
            found.append(chosen.make(b, start))
    finally:
        b.rng = outer
    made = found[1:]
    if parallel and len({(value.dtype, value.shape) for value in made}) == 1 and made[0].is_float:
        if b.chance(0.5) and made[0].rank:
            b.op("Concat", *made, axis=-1)
        else:
            b.op("Add", *made[:2])


def _check(b: Builder) -> None:
    """Raise Unfit where ONNX Runtime does not run what there is, or a value becomes infinite or very large."""
    model = _model(b, _outputs(b))
    names = [value.name for value in b.values if value.is_float]
    lowest = any(value.dtype == HALF for value in b.values)
    try:
        session = opened(model.proto, names)
        largest = max(largest_magnitude(session, model.feeds(seed, 1.0, 2)) for seed in (0, 1))
    except RuntimeError as error:
        raise Unfit(str(error)) from error
    if not largest <= (_LARGEST_HALF if lowest else _LARGEST):
        raise Unfit(f"values of {largest:g}")


def _outputs(b: Builder) -> list[Value]:
    """Return some of the values that no node reads, and now and then another one."""
    read = {name for node in b.nodes for name in node.input}
    given = {each.value.name for each in b.inputs}
    free = [value for value in b.values if value.name not in read and value.name not in given]
    found = (free or b.values)[-_MOST_OUTPUTS:]
    inner = [value for value in b.values if value.name in read and value.name not in given]
    if inner and len(b.nodes) % 4 == 0:
        found.append(inner[len(inner) // 2])
    return found


def _drawn(given: Input, rng: np.random.Generator, magnitude: float, batch: int) -> Array:
    shape = [batch if isinstance(dim, str) else dim for dim in given.value.shape]
    kind = onnx.helper.tensor_dtype_to_np_dtype(given.value.dtype)
    if given.value.is_float:
        return np.asarray(magnitude * rng.standard_normal(shape)).astype(kind)
    return np.asarray(rng.integers(given.low, given.high, shape)).astype(kind)
