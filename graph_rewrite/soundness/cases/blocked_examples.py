"""Examples of the rules of the blocked layout, as `blocked.image` takes them: text, and shapes of constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Shapes = Mapping[str, Sequence[int]]
_W: Shapes = {"w": (-1, -1, 3, 1)}
_WB: Shapes = {"w": (-1, -1, 3, 1), "b": (-1,)}
_CONV = "t = NCHWC.Conv<kernel_shape=[3,1]>"
_ACTIVATIONS = ("HardSigmoid", "LeakyRelu<alpha=0.25>", "Relu", "Sigmoid", "Tanh")


def _out(channels: int = 16, name: str = "t", of: str = "x") -> str:
    return f"{name} = NCHWC.ReorderOutput<channels={channels}>({of})"


_TALL, _POINT = (-1, -1, 3, 1), (-1, -1, 1, 1)
_TWO = "a = Conv<pads=[1,0,1,0]>(x, w, b)  r = Relu(a)  c = Conv(r, v)"
PARTS: Sequence[tuple[str, Shapes]] = (
    # A residual block: the sum goes into the second convolution, the Relu after it.
    (
        f"(float[1,B,3,4] x) => (y) {{ {_TWO}  s = Add(c, x)  t = Relu(s)  y = TURN(t) }}",
        {"w": _TALL, "b": (-1,), "v": _POINT},
    ),
    # Few channels are read plainly, others are padded; a pool, a number and a factor per channel.
    (
        "(float[2,3,4,5] x, float[2,C,4,5] z) => (y) { a = Conv<pads=[1,1,1,1]>(x, w)  r = Sigmoid(a)"
        "  p = Conv(z, v)  m = Mul(p, f)  h = Mul(m, n)  s = Add(h, r)"
        "  t = MaxPool<kernel_shape=[2,2],strides=[2,2]>(s)  y = TURN(t) }",
        {"w": (-1, 3, 3, 3), "v": (-1, -2, 1, 1), "f": (-1, 1, 1), "n": (1,)},
    ),
    # Channels that do not fill a block, groups, depthwise filters, a pool of everything.
    (
        "(float[1,20,3,4] x) => (y) { a = Conv(x, w)  d = Conv<group=32,pads=[0,1,0,1]>(a, v)  e = LeakyRelu(d)"
        "  c = Conv<group=2>(e, u)  t = GlobalAveragePool(c)  y = TURN(t) }",
        {"w": (32, 20, 1, 1), "v": (32, 1, 1, 3), "u": (32, 16, 1, 1)},
    ),
    # Frames: a batch is cut, padded and joined; clips are a Transpose of them.
    (
        "(float[1,B,3,2,2] x) => (y) <int64[6] p = {0,1,0,0,0,0}, int64[10] q = {0,1,0,0,0,0,0,0,0,0},"
        " int64[4] i = {4,16,2,2}, int64[5] o = {1,4,16,2,2}, int64[1] s = {1}, int64[1] e = {4}, int64[1] t = {1}>"
        " { f = Transpose<perm=[0,2,1,3,4]>(x)  g = Pad(f, q)  h = Reshape(g, i)  c = Conv(h, v)  k = Conv(h, v)"
        "  l = Add(c, k)  m = Reshape(l, o)  n = Slice(m, s, e, t)  u = Transpose<perm=[0,2,1,3,4]>(n)"
        "  r = Add(u, x)  y = Relu(r) }",
        {"v": _POINT},
    ),
    # Rows and columns that take turns, as the results of a fast convolution do.
    (
        "(float[1,B,2,3] x) => (y) <int64[5] i = {1,16,2,3,1}, int64[4] o = {1,16,2,6}, int64[4] r = {1,16,4,6},"
        " int64[1] s = {0}, int64[1] e = {5}, int64[1] t = {3}>"
        " { a = Conv(x, w)  b = Conv(x, v)  c = Reshape(a, i)  d = Reshape(b, i)  f = Concat<axis=4>(c, d)"
        "  g = Reshape(f, o)  h = Concat<axis=3>(g, g)  k = Reshape(h, r)  y = Slice(k, s, e, t) }",
        {"w": _POINT, "v": _POINT},
    ),
    # Remainders of positions as a batch, and back.
    (
        "(float[1,B,4,2] x) => (y) <int64[6] i = {1,16,2,2,1,2}, int64[4] o = {4,16,2,1}, int64[6] j = {2,2,1,16,2,1},"
        " int64[4] k = {1,16,4,2}>"
        " { a = Conv(x, w)  b = Reshape(a, i)  c = Transpose<perm=[3,5,0,1,2,4]>(b)  d = Reshape(c, o)"
        "  e = Conv<pads=[1,0,1,0]>(d, v)  f = Reshape(e, j)  g = Transpose<perm=[2,3,4,0,5,1]>(f)  y = Reshape(g, k)"
        " }",
        {"w": _POINT, "v": _TALL},
    ),
    # Joins of channels, whose parts are cut out again.
    (
        "(float[2,B,2,2] x) => (y) <int64[1] s = {0}, int64[1] e = {16}, int64[1] t = {1}>"
        " { a = Conv(x, w)  b = Conv(x, v)  c = Concat<axis=1>(a, x, b)  d = Slice(c, s, e, t)  f, g = Split<axis=0,"
        "num_outputs=2>(d)  h = Sub(f, g)  y = AveragePool<kernel_shape=[2,1],pads=[1,0,0,0]>(h) }",
        {"w": _POINT, "v": _POINT},
    ),
)
"""Parts of networks for `PartInBlockedLayout`."""

WIDER_PARTS: Sequence[tuple[str, Shapes]] = (
    # Squeeze-and-excitation over channels that do not fill blocks; the factors go into the filters of the last one.
    (
        "(float[1,B,8,8] x) => (y) <int64[2] a = {2,3}> { c = Conv(x, w, b)  r = HardSwish(c)  m = ReduceMean(r, a)"
        "  s = Conv(m, v, d)  q = Relu(s)  e = Conv(q, u)  g = HardSigmoid(e)  p = Mul(g, r)  y = Conv(p, z) }",
        {"w": (20, -1, 1, 1), "b": (20,), "v": (18, 20, 1, 1), "d": (18,), "u": (20, 18, 1, 1), "z": (12, 20, 1, 1)},
    ),
    # Few positions: the factors are multiplied with the image. A padded sum, of which one operand comes from outside.
    (
        "(float[1,3,3,2] x, float[1,20,3,2] z) => (y) { c = Conv(x, w)  f = Sigmoid(c)  r = Mul(c, f)"
        "  d = Conv<group=20,pads=[1,0,1,0]>(r, k)  m = GlobalAveragePool(d)  e = Conv(m, u)  g = Relu(e)"
        "  p = Mul(d, g)  o = Conv(p, v)  y = Add(o, z) }",
        {"w": (20, 3, 1, 1), "k": (20, 1, 3, 1), "u": (20, 20, 1, 1), "v": (20, 20, 1, 1)},
    ),
    # A mean in two steps, and a product that something else reads as well.
    (
        "(float[1,3,32,32] x) => (y) <int64[2] a = {-1,-2}> { c = Conv(x, w)  m = ReduceMean(c, a)  e = Conv(m, u)"
        "  p = Mul(c, e)  o = Conv(p, v)  s = Add(o, p)  y = MaxPool<kernel_shape=[4,4],strides=[4,4]>(s) }",
        {"w": (4, 3, 1, 1), "u": (4, 4, 1, 1), "v": (4, 4, 1, 1)},
    ),
    # A dense block: normalisations of joined parts.
    (
        "(float[1,B,2,2] x) => (y) { c0 = Conv(x, w)  "
        + "  ".join(
            f"n{k} = BatchNormalization<epsilon=8.0>(c{k - 1}, s, b, m, i)  r{k} = Relu(n{k})  d{k} = Conv(r{k}, w)  "
            f"c{k} = {'Concat<axis=1>' if k == 8 else 'Add'}(c{k - 1}, d{k})"
            for k in range(1, 9)
        )
        + "  y = Neg(c8) }",
        {"w": _POINT, "s": (-1,), "b": (-1,), "m": (-1,), "i": (-1,)},
    ),
)
"""Parts of networks for `WiderPartInBlockedLayout`."""

EXAMPLES: Mapping[str, Sequence[tuple[str, Shapes]]] = {
    "WiderPartInBlockedLayout": WIDER_PARTS,
    "BlockedConvByRows4": (
        ("(float[1,B,28,2] x) => (y) { t = NCHWC.Conv<kernel_shape=[3,3],pads=[1,1,1,1]>(x, w, b)  y = Neg(t) }",
         {"w": (-1, -1, 3, 3), "b": (-1,)}),
        ("(float[1,B,31,1] x) => (y) { t = NCHWC.Conv<kernel_shape=[3,1]>(x, w)  y = Neg(t) }", {"w": (-1, -1, 3, 1)}),
    ),
    "PadBeforeTransposeAndDepthwise": tuple(
        (f"(float[{x}] x) => (y{more}) {{ t = Transpose<perm=[0,3,1,2]>(x)  u = Conv<group={n},{attrs}>({operands})"
         "  y = Neg(u) }", {"w": (n, 1, *k), "b": (n,)})
        for x, n, k, attrs, operands, more in (
            ("1,2,7,16", 16, (2, 5), "pads=[1,2,0,2]", "t, w, b", ""),
            ("2,1,4,3", 3, (2, 6), "auto_pad=\"SAME_LOWER\"", "t, w", ", t"),
            ("1,1,7,4", 4, (1, 5), "dilations=[1,2],pads=[0,3,0,0]", "t, w, b", ""),
        )
    ),
    "PadBeforeBlockedDepthwise": tuple(
        (f"(float[{x}] x) => (y) {{ t = NCHWC.Conv<kernel_shape=[{k[0]},{k[1]}],group={n},{attrs}>({operands})"
         "  y = Neg(t) }", {"w": (-n // 16, 1, *k), "b": (n,)})
        for x, n, k, attrs, operands in (
            ("1,B,2,7", 16, (2, 5), "pads=[1,2,0,2]", "x, w, b"),
            ("2,C,1,3", 32, (1, 7), "pads=[0,4,0,1],activation=\"Relu\"", "x, w"),
            ("1,B,1,7", 16, (1, 5), "pads=[0,3,0,0],dilations=[1,2]", "x, w, b"),
            ("1,B,2,4", 16, (2, 6), "auto_pad=\"SAME_LOWER\"", "x, w"),
        )
    ),
    "PartInBlockedLayout": PARTS,
    "ConvInBlockedLayout": (
        ("(float[1,B,3,4] x) => (y) { v = Conv<pads=[1,0,1,0]>(x, w, b)  y = TURN(v) }", _WB),
        ("(float[2,3,5,4] x) => (y) { v = Conv<strides=[2,1]>(x, w)  y = TURN(v) }", {"w": (-1, 3, 3, 3)}),
        ("(float[1,20,3,3] x) => (y) { v = Conv<auto_pad=\"SAME_UPPER\">(x, w, b)  y = TURN(v) }",
         {"w": (-2, 20, 2, 2), "b": (-2,)}),
        ("(float[1,32,6,2] x) => (y) { v = Conv<group=32,dilations=[2,1]>(x, w)  y = TURN(v) }", {"w": (32, 1, 3, 1)}),
        ("(float[1,32,2,2] x) => (y) { v = Conv<group=2>(x, w)  y = TURN(v) }", {"w": (32, 16, 1, 1)}),
        ("(float[1,B,3,4] x) => (y) { t = NCHWC.MaxPool<kernel_shape=[1,2]>(x)  u = NCHWC.ReorderOutput<channels=16>(t)"
         "  v = Conv(u, w)  y = TURN(v) }", _W),
    ),
    "ConvActivationInBlockedLayout": tuple(
        (f"(float[1,{c},3,2] x) => (y) {{ t = Conv<pads=[0,0,1,0]>(x, w, b)  v = {f}(t)  y = TURN(v) }}",
         {"w": (-1, n, 2, 1), "b": (-1,)})
        for (c, n), f in zip((("B", -1), ("3", 3), ("B", -1), ("20", 20), ("C", -2)), _ACTIVATIONS, strict=True)
    ),
    "ResidualInBlockedLayout": (
        ("(float[1,B,3,4] x, float[1,B,1,4] s) => (y) { t = Conv(x, w, b)  u = Add(t, s)  v = Relu(u)  y = TURN(v) }",
         _WB),
        ("(float[2,3,2,2] x, float[2,B,2,2] s) => (y) { t = Conv(x, w)  u = Add(s, t)  v = Relu(u)  y = TURN(v) }",
         {"w": (-1, 3, 1, 1)}),
        ("(float[1,B,3,2] x) => (y) { t = Conv<pads=[1,0,1,0]>(x, w)  u = Add(x, t)  v = Relu(u)  y = TURN(v) }", _W),
    ),
    "BlockedConvToConv": (
        ("(float[1,B,3,4] x) => (y) { t = NCHWC.ReorderInput(x)  u = NCHWC.Conv<kernel_shape=[3,1]>(t, w, b)"
         "  y = NCHWC.ReorderOutput<channels=16>(u) }", _WB),
        ("(float[2,32,2,4] x) => (y) { t = NCHWC.ReorderInput(x)  u = NCHWC.Conv<kernel_shape=[1,2],group=32,"
         "pads=[0,1,0,0]>(t, w)  y = NCHWC.ReorderOutput<channels=32>(u) }", {"w": (32, 1, 1, 2)}),
    ),
    "ActivationIntoBlockedConv": tuple(
        (f"(float[1,B,3,2] x, float[1,B,1,2] s) => (y) {{ {_CONV}(x, w{more})  y = {f}(t) }}", _WB)
        for f, more in zip(_ACTIVATIONS, ("", ", b", ", b, s", ", b", ""), strict=True)
    ),
    "SumIntoBlockedConv": (
        ("(float[1,B,3,2] x, float[1,B,1,2] s) => (y) { " + _CONV + "(x, w, b)  y = Add(t, s) }", _WB),
        ("(float[2,B,4,1] x, float[2,B,2,1] s) => (y) { t = NCHWC.Conv<kernel_shape=[3,1]>(x, w)  y = Add(s, t) }", _W),
    ),
    "ReorderOutputThenInput": tuple(
        (f"(float[{n},{c},2,3] x) => (y{more}) {{ {_out(k)}  u = NCHWC.ReorderInput(t)  y = Neg(u) }}", {})
        for n, c, k, more in ((1, "B", 16, ""), (2, "C", 32, ", t"))
    ),
    "ReorderInputThenOutput": tuple(
        (f"(float[1,{c},3,2] x) => (y) {{ t = NCHWC.ReorderInput(x)  {_out(k, 'u', 't')}  y = Neg(u) }}", {})
        for c, k in (("B", 16), ("20", 20), ("12", 12))
    ),
    "UnaryInBlockedLayout": tuple(
        (f"(float[1,B,2,2] x) => (y{more}) {{ {_out()}  y = {f}(t) }}", {})
        for f, more in (
            ("Relu", ""), ("Sigmoid", ", t"), ("LeakyRelu<alpha=0.5>", ""), ("HardSwish", ""), ("Neg", ""), ("Exp", ""),
        )
    ),
    "BinaryInBlockedLayout": (
        *((f"(float[1,B,2,2] x, float[1,B,2,2] z) => (y) {{ {_out()}  {_out(name='u', of='z')}  y = {f}(t, u) }}", {})
          for f in ("Add", "Max")),
        ("(float[1,B,2,2] x, float[1,B,2,2] z) => (y) { " + _out() + "  y = Sub(z, t) }", {}),
        ("(float[2,C,1,2] x) => (y) { " + _out(32) + "  y = Mul(t, c) }", {"c": (-2, 1, 1)}),
        ("(float[2,B,1,2] x) => (y) { " + _out() + "  y = Sub(t, c) }", {"c": (1, -1, 1, 1)}),
        ("(float[1,B,1,2] x) => (y) { " + _out() + "  y = Add(c, t) }", {"c": (-1, 1, 1)}),
        ("(float[1,B,2,1] x) => (y, t) { " + _out() + "  y = Div(t, c) }", {"c": (1,)}),
    ),
    "PoolInBlockedLayout": tuple(
        (f"(float[1,B,3,4] x) => (y) {{ {_out()}  y = {f}(t) }}", {})
        for f in ("MaxPool<kernel_shape=[2,2],strides=[1,2],pads=[1,0,0,0]>", "GlobalAveragePool", "GlobalMaxPool",
                  "AveragePool<kernel_shape=[3,2],pads=[1,1,1,0],count_include_pad=1>",
                  "AveragePool<kernel_shape=[2,2],auto_pad=\"SAME_LOWER\">")
    ),
    "ConcatInBlockedLayout": tuple(
        (f"(float[{x}] x, float[{z}] z) => (y) {{ {_out()}  y = Concat<axis={axis}>({order}) }}", {})
        for axis, x, z, order in ((0, "1,B,2,2", "2,B,2,2", "t, z"), (1, "2,B,1,2", "2,C,1,2", "z, t"),
                                  (2, "1,B,1,3", "1,B,2,3", "t, z, t"), (-1, "2,B,2,1", "2,B,2,2", "t, z"))
    ),
    "CutInBlockedLayout": tuple(
        (f"(float[{x}] x) => (y) <{given}> {{ {_out(k)}  y = {f} }}", {})
        for x, k, given, f in (
            ("3,B,2,2", 16, "int64[1] s = {0}, int64[1] e = {3}, int64[1] a = {0}, int64[1] i = {2}",
             "Slice(t, s, e, a, i)"),
            ("1,C,2,2", 32, "int64[2] s = {16,1}, int64[2] e = {32,2}, int64[2] a = {1,3}", "Slice(t, s, e, a)"),
            ("3,B,2,1", 16, "int64[2] i = {0,2}", "Gather<axis=0>(t, i)"),
            ("1,B,2,3", 16, "int64[8] p = {1,0,0,1,0,0,2,0}", "Pad(t, p)"),
        )
    ),
    "SplitInBlockedLayout": (
        ("(float[3,B,2,2] x) => (y, z) <int64[2] s = {1,2}> { " + _out() + "  y, z = Split<axis=0>(t, s) }", {}),
        ("(float[1,C,1,2] x) => (y, z) <int64[2] s = {16,16}> { " + _out(32) + "  y, z = Split<axis=1>(t, s) }", {}),
    ),
}  # fmt: skip
