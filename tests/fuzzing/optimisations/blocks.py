"""Steps that are blocks of networks, as exporters write them: attention, normalisations by hand, embeddings."""

from __future__ import annotations

import numpy as np

from tests.fuzzing.optimisations.builder import FLOAT, INT64, Builder, Unfit, Value
from tests.fuzzing.optimisations.reductions import reduce
from tests.fuzzing.optimisations.registry import booleans, matrices, sequences, step, tensors


def projection(b: Builder, x: Value, to: int, bias: bool) -> Value:
    width = x.dim(-1)
    y = b.op("MatMul", x, b.weight(width, to, dtype=x.dtype, fan_in=width))
    return b.op("Add", *((y, b.weight(to, dtype=x.dtype)) if b.chance(0.7) else (b.weight(to, dtype=x.dtype), y))) if (
        bias) else y  # fmt: skip


def heads_of(b: Builder, x: Value, heads: int, order: list[int]) -> Value:
    batch = 0 if isinstance(x.shape[0], str) else x.shape[0]
    return b.op("Transpose", b.op("Reshape", x, b.ints(batch, x.dim(1), heads, x.dim(2) // heads)), perm=order)


@step(sequences, 12.0)
def attention(b: Builder, x: Value) -> Value:
    """Scaled products of queries and keys, in one of the ways in which exporters write them."""
    width = x.dim(2)
    heads = b.choice([h for h in (1, 2, 4) if width % h == 0 and width // h >= 2] or [1])
    size, bias = width // heads, b.chance(0.6)
    if b.chance(0.3):
        packed = projection(b, x, 3 * width, bias)
        q, k, v = b.several("Split", 3, packed, b.ints(width, width, width), axis=-1)
    else:
        q, k, v = (projection(b, x, width, bias) for _ in range(3))
    turned = b.chance(0.7)
    q, v = heads_of(b, q, heads, [0, 2, 1, 3]), heads_of(b, v, heads, [0, 2, 1, 3])
    k = heads_of(b, k, heads, [0, 2, 3, 1]) if turned else b.op(
        "Transpose", heads_of(b, k, heads, [0, 2, 1, 3]), perm=[0, 1, 3, 2])  # fmt: skip
    scores = _scores(b, q, k, size)
    if b.chance(0.4):
        length = x.dim(1)
        mask = np.triu(np.full((length, length), -1e4), 1) if b.chance(0.6) else np.zeros((length, length))
        scores = b.op("Add", scores, b.constant(mask[None, None], x.dtype))
    weights = b.op("Softmax", scores, axis=-1)
    y = b.op("Transpose", b.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    batch = 0 if isinstance(x.shape[0], str) else x.shape[0]
    return projection(b, b.op("Reshape", y, b.ints(batch, x.dim(1), width)), width, bias)


def _scores(b: Builder, q: Value, k: Value, size: int) -> Value:
    root = np.sqrt(size)
    match b.rng.randrange(5):
        case 0:
            return b.op("Mul", b.op("MatMul", q, k), b.constant(1.0 / root, q.dtype))
        case 1:
            return b.op("Div", b.op("MatMul", q, k), b.constant(root, q.dtype))
        case 2:
            return b.op("MatMul", b.op("Mul", q, b.constant(1.0 / root, q.dtype)), k)
        case 3:
            quarter = b.constant(1.0 / np.sqrt(root), q.dtype)
            return b.op("MatMul", b.op("Mul", q, quarter), b.op("Mul", k, quarter))
        case _:
            return b.op("MatMul", q, k)


@step(sequences, 4.0)
def feed_forward(b: Builder, x: Value) -> Value:
    """Normalisation, two products with an activation between them, and a way around."""
    width = x.dim(2)
    y = b.op("LayerNormalization", x, b.positive(width, dtype=x.dtype), b.weight(width, dtype=x.dtype), axis=-1)
    y = projection(b, y, 2 * width, True)
    y = b.op(b.choice(("Gelu", "Relu")), y)
    return b.op("Add", x, projection(b, y, width, True))


@step(tensors, 2.0)
def normalization_by_hand(b: Builder, x: Value) -> Value:
    """LayerNormalization or RMSNormalization, written out."""
    width, axis = x.dim(-1), x.rank - 1
    scale, bias = b.positive(width, dtype=x.dtype), b.weight(width, dtype=x.dtype)
    eps, two = b.constant(1e-3, x.dtype), b.constant(2.0, x.dtype)
    centred = b.op("Sub", x, reduce(b, "ReduceMean", x, axis)) if b.chance(0.6) else x
    square = b.op("Pow", centred, two) if b.chance(0.7) else b.op("Mul", centred, centred)
    root = b.op("Sqrt", b.op("Add", reduce(b, "ReduceMean", square, axis), eps))
    y = b.op("Div", centred, root) if b.chance(0.7) else b.op("Mul", centred, b.op("Reciprocal", root))
    y = b.op("Mul", y, scale) if b.chance(0.7) else b.op("Mul", scale, y)
    return b.op("Add", y, bias) if b.chance(0.7) else y


@step(tensors, 1.5)
def skip_and_norm(b: Builder, x: Value) -> Value:
    """A sum, with a bias now and then, and its normalisation."""
    width = x.dim(-1)
    y = b.op("Add", x, b.like(x, 0.0))
    if b.chance(0.3):
        y = b.op("Add", y, b.weight(width, dtype=x.dtype))
    z = b.op("LayerNormalization", y, b.positive(width, dtype=x.dtype), b.weight(width, dtype=x.dtype), axis=-1)
    return b.op("Add", y, z) if b.chance(0.3) else z


@step(tensors, 0.8)
def softmax_by_hand(b: Builder, x: Value) -> Value:
    axis = x.rank - 1
    x.dim(axis)
    x = b.op("Sub", x, reduce(b, "ReduceMax", x, axis)) if b.chance(0.7) else b.op("Tanh", x)
    e = b.op("Exp", x)
    return b.op("Div", e, reduce(b, "ReduceSum", e, axis))


@step(lambda x: x.dtype == INT64 and x.rank in (1, 2), 5.0)
def embedding(b: Builder, x: Value) -> Value:
    """A table looked up by indices, with what often follows: positions, a normalisation, a product."""
    rows, width = 11, b.choice((4, 6, 8))
    dtype = b.choice((FLOAT, FLOAT, FLOAT, 10, 11))
    is_input = any(given.value == x for given in b.inputs)
    if not is_input:
        x = b.op("Mod", x, b.constant(rows, INT64))
    y = b.op("Gather", b.weight(rows, width, dtype=dtype), x, axis=0)
    if b.chance(0.5):
        y = b.op("Add", y, b.weight(x.dim(-1), width, dtype=dtype))
    if b.chance(0.4):
        y = b.op("LayerNormalization", y, b.positive(width, dtype=dtype), b.weight(width, dtype=dtype), axis=-1)
    if b.chance(0.3):
        y = b.op("Mul", y, b.constant(np.sqrt(width), dtype))
    return projection(b, y, b.choice((4, 8)), b.chance(0.5)) if b.chance(0.4) else y


@step(booleans, 1.0)
def mask_of_numbers(b: Builder, x: Value) -> Value:
    """A mask as exporters make it of booleans: minus a large number where it is false."""
    numbers = b.op("Cast", x, to=FLOAT)
    return b.op("Mul", b.op("Sub", b.constant(1.0, FLOAT), numbers), b.constant(-1e4, FLOAT))


@step(matrices, 0.8)
def windows(b: Builder, x: Value) -> Value:
    """The product of a part of the rows, and of the others, put together."""
    width, rows = x.dim(-1), x.dim(-2)
    if rows < 2:
        raise Unfit("one row")
    weight = b.weight(width, width, dtype=x.dtype, fan_in=width)
    parts = b.several("Split", 2, x, b.ints(rows // 2, rows - rows // 2), axis=-2)
    return b.op("Concat", *(b.op("MatMul", part, weight) for part in parts), axis=-2)


@step(sequences, 0.8)
def rotation(b: Builder, x: Value) -> Value:
    """A rotary embedding of positions."""
    width = x.dim(2)
    if width % 2:
        raise Unfit("an odd width")
    left, right = b.several("Split", 2, x, b.ints(width // 2, width // 2), axis=-1)
    turned = b.op("Concat", b.op("Neg", right), left, axis=-1)
    angles = b.numbers.uniform(0.0, 3.0, (x.dim(1), width))
    return b.op("Add", b.op("Mul", x, b.constant(np.cos(angles), x.dtype)),
                b.op("Mul", turned, b.constant(np.sin(angles), x.dtype)))  # fmt: skip
