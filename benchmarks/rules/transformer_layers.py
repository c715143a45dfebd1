"""Layers of transformers for `families`: graphs in float32, batch 1, with seeded weights, and their forms.

A form is a name and passes of rules, each pass applied wherever it can be before the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite import Graph
from graph_rewrite.onnx_files.assembly import model

Forms = tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
Case = tuple[str, Graph, Forms]

ATTENTION = ("FusePackedAttention", "FusePackedMaskedAttention")
CORES: Forms = (
    ("Attention", (ATTENTION,)), ("MultiHeadAttention", (ATTENTION, ("AttentionAsMultiHead",))),
)  # fmt: skip
CAUSAL: Forms = (
    ("Attention, masked", (ATTENTION,)), ("Attention, causal", (ATTENTION, ("CausalMaskAsFlag",))),
    ("in 4 blocks of queries", (ATTENTION, ("CausalMaskAsFlag",), ("CausalAttentionInBlocks",))),
)  # fmt: skip
POINTWISE: Forms = (("1x1 convolutions", (("FeedForwardToPointwiseConvs",),)),)
STRASSEN: Forms = (
    *POINTWISE, ("by quarters", (("StrassenFeedForward",),)), ("by sixteenths", (("StrassenFeedForwardTwice",),)),
)  # fmt: skip
LINEAR: Forms = (
    ("1x1 convolution", (("LinearToPointwiseConv",),)), ("by quarters", (("StrassenLinear",),)),
)  # fmt: skip
SUMS: Forms = (("Add as Sum", (("ResidualAsSum",),)),)
TILES: Forms = (
    ("8 tiles", (("TileBroadcastLinear8",),)),
    ("8 tiles, with Softmax", (("TileBroadcastLinear8",), ("SoftmaxOfTiles",))),
)
LOOKUPS: Forms = (("looked up", (("ThreeLinearsOfEmbedding",),)),)
ROWS: Forms = (("on rows", (("EncoderLayerAsRows",), ("ComposeReshapes",), ("DropReshape",))),)


def attention(tokens: int, heads: int, causal: bool = False, size: int = 64) -> Graph:
    """Return the core of attention over packed heads; queries, keys and values are scaled from one input each."""
    text = f"""(float[1,{tokens},{heads * size}] q, float[1,{tokens},{heads * size}] k,
        float[1,{tokens},{heads * size}] v) => (y)
        <int64[4] split = {{1, {tokens}, {heads}, {size}}}, int64[3] merge = {{1, {tokens}, {heads * size}}}> {{
        q4 = Reshape(q, split)  qh = Transpose<perm=[0,2,1,3]>(q4)  k4 = Reshape(k, split)
        kh = Transpose<perm=[0,2,3,1]>(k4)  v4 = Reshape(v, split)  vh = Transpose<perm=[0,2,1,3]>(v4)
        s = MatMul(qh, kh)  t = Mul(s, c)  {"m = Add(t, mask)  w = Softmax(m)" if causal else "w = Softmax(t)"}
        z = MatMul(w, vh)  zt = Transpose<perm=[0,2,1,3]>(z)  y = Reshape(zt, merge)
    }}"""
    given: dict[str, Any] = {"c": np.float32(size**-0.5)}
    if causal:
        given["mask"] = np.where(np.tri(tokens, dtype=np.bool_), 0.0, -1e30).astype(np.float32)
    return model(text, **given)


def feed_forward(tokens: int, width: int, hidden: int, function: str = "Gelu") -> Graph:
    """Return a feed-forward network with biases."""
    text = "p = MatMul(x, v)  d = Add(p, a)  f = {}(d)  q = MatMul(f, w)  y = Add(q, b)"
    given: dict[str, Any] = {
        "v": _weights(width, hidden),
        "a": _weights(hidden),
        "w": _weights(hidden, width),
        "b": _weights(width),
    }
    return model(f"(float[1,{tokens},{width}] x) => (y) {{ {text.format(function)} }}", **given)


def linear(tokens: int, width: int, columns: int) -> Graph:
    """Return a linear layer with a bias."""
    text = f"(float[1,{tokens},{width}] x) => (y) {{ p = MatMul(x, w)  y = Add(p, b) }}"
    return model(text, w=_weights(width, columns), b=_weights(columns))


def residual(tokens: int, width: int) -> Graph:
    """Return two sums, each before a normalisation, which ONNX Runtime turns into SkipLayerNormalization."""
    text = "s = Add(x, r)  n = LayerNormalization(s, g, b)  t = Add(n, r)  y = LayerNormalization(t, g, b)"
    shape = f"float[1,{tokens},{width}]"
    return model(f"({shape} x, {shape} r) => (y) {{ {text} }}", g=_weights(width) + 1, b=_weights(width))


def encoder(tokens: int, width: int, hidden: int, heads: int) -> Graph:
    """Return two encoder layers of BERT's form, with their sums as `Sum` and attention as one operator."""
    layers, x = [], "x"
    given: dict[str, Any] = {f"w{i}": _weights(width, width) for i in "qkvo"}
    given |= {f"b{i}": _weights(width) for i in "qkvo"} | {"w1": _weights(width, hidden), "w2": _weights(hidden, width)}
    given |= {"b1": _weights(hidden), "b2": _weights(width), "g": _weights(width) + 1, "s": _weights(width)}
    for n in range(2):
        projections = " ".join(f"{i}m{n} = MatMul({x}, w{i})  {i}{n} = Add({i}m{n}, b{i})" for i in "qkv")
        layers.append(f"""{projections}
            c{n} = Attention<q_num_heads={heads}, kv_num_heads={heads}>(q{n}, k{n}, v{n})
            om{n} = MatMul(c{n}, wo)  o{n} = Add(om{n}, bo)  m{n} = Sum(o{n}, {x})
            n{n} = LayerNormalization(m{n}, g, s)  dm{n} = MatMul(n{n}, w1)  d{n} = Add(dm{n}, b1)  f{n} = Gelu(d{n})
            em{n} = MatMul(f{n}, w2)  e{n} = Add(em{n}, b2)  z{n} = Sum(e{n}, n{n})
            y{n} = LayerNormalization(z{n}, g, s)""")
        x = f"y{n}"
    return model(f"(float[1,{tokens},{width}] x) => ({x}) {{ {' '.join(layers)} }}", **given)


def embedded(tokens: int, width: int, vocabulary: int) -> Graph:
    """Return the beginning of BERT: embeddings of tokens and positions, and the first layer's projections.

    Query, key and value projections are added to their input.
    """
    text = "r = Gather(t, i)  e = Add(r, p)  x = LayerNormalization(e, g, s)"
    text += "".join(f"  {n}m = MatMul(x, w{n})  {n} = Add({n}m, b{n})" for n in "qkv") + "  y = Sum(q, k, v, x)"
    given: dict[str, Any] = {f"w{n}": _weights(width, width) for n in "qkv"} | {f"b{n}": _weights(width) for n in "qkv"}
    given |= {"t": _weights(vocabulary, width), "p": _weights(tokens, width)}
    given |= {"g": _weights(width) + 1, "s": _weights(width)}
    return model(f"(int64[1,{tokens}] i) => (y) {{ {text} }}", **given)


def joint(frames: int, labels: int, width: int, symbols: int) -> Graph:
    """Return the joint network of a transducer: every frame with every label."""
    text = "s = Add(x, y)  t = Tanh(s)  p = MatMul(t, w)  q = Add(p, b)  z = LogSoftmax(q)"
    shapes = f"float[1,{frames},1,{width}] x, float[1,1,{labels},{width}] y"
    return model(f"({shapes}) => (z) {{ {text} }}", w=_weights(width, symbols), b=_weights(symbols))


def _weights(*shape: int) -> np.ndarray[Any, Any]:
    scale = shape[0] ** -0.5 if len(shape) > 1 else 0.1
    return (scale * np.random.default_rng(shape[0]).standard_normal(shape)).astype(np.float32)


def cores() -> Iterator[Case]:
    """Yield cores of attention, of 12 heads but for BERT-tiny's."""
    for tokens, heads in ((128, 2), (128, 12), (197, 12)):
        yield f"{tokens} tokens, {heads} heads", attention(tokens, heads), CORES
    yield "256 tokens, 12 heads, causal", attention(256, 12, causal=True), CAUSAL


def networks() -> Iterator[Case]:
    """Yield feed-forward networks of BERT-tiny, BERT-base, ViT-Base and the transducer."""
    for tokens, width, function in ((128, 128, "Gelu"), (128, 768, "Gelu"), (197, 768, "Gelu"), (128, 512, "Relu")):
        yield (
            f"{tokens} x {width} x {4 * width}, {function}",
            feed_forward(tokens, width, 4 * width, function),
            POINTWISE,
        )


def products() -> Iterator[Case]:
    """Yield feed-forward networks where Strassen's algorithm may pay, and single layers."""
    for tokens, width in ((128, 512), (128, 768), (197, 768), (256, 768), (512, 768), (512, 1024)):
        graph = feed_forward(tokens, width, 4 * width)
        yield f"{tokens} x {width} x {4 * width}, Gelu", graph, STRASSEN if tokens >= 384 else STRASSEN[:2]
    for tokens, width in ((256, 768), (512, 768), (512, 1024)):
        yield f"{tokens} x {width} x {width}", linear(tokens, width, width), LINEAR


def sums() -> Iterator[Case]:
    """Yield residual sums before normalisations."""
    for width in (128, 768):
        yield f"128 x {width}, twice", residual(128, width), SUMS


def encoders() -> Iterator[Case]:
    """Yield two layers of BERT-tiny."""
    yield "two layers, 128 x 128", encoder(128, 128, 512, 2), ROWS


def embeddings() -> Iterator[Case]:
    """Yield the first projections of BERT-tiny, BERT-base and a decoder of images."""
    for tokens, width, vocabulary in ((128, 128, 30522), (128, 768, 30522), (256, 768, 24576)):
        yield f"{tokens} of {vocabulary} tokens, {width} channels", embedded(tokens, width, vocabulary), LOOKUPS


def joints() -> Iterator[Case]:
    """Yield the joint network of the transducer."""
    yield "128 frames x 32 labels, 512 to 1024", joint(128, 32, 512, 1024), TILES


CASES = {
    "attention": cores, "feed_forward": networks, "residual": sums, "rows": encoders,
    "strassen": products, "embedding": embeddings, "tiling": joints,
}  # fmt: skip
