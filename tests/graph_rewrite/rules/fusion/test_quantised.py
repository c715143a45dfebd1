"""Quantisation moved in front of Relu, Clip, Concat and moves: the same integers, and integer kernels after it."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest

from graph_rewrite import Graph, Rewriter
from graph_rewrite.operators.evaluation import run_operator
from graph_rewrite.rules.fusion import quantised as Q
from tests.graph_rewrite.optimized import optimized_ops
from tests.graph_rewrite.rules.checking import model, ops, refuses, run_onnxruntime, weights

ZEROS = (np.int8(0), np.int8(-5), np.int8(127), np.uint8(128), np.uint8(3))
SCALES = (0.5, 0.1, 0.037)


def after(rule: type, graph: Graph) -> Graph:
    (candidate,) = Rewriter([rule()], "site", deployment=False).candidates(graph)
    return candidate.apply()


def every_step(scale: float, zero: np.integer) -> np.ndarray:
    """Numbers at and about every integer and every middle of two, and beyond the ends."""
    steps = np.arange(-600, 600, dtype=np.float32) / 2
    at = (steps * np.float32(scale)).astype(np.float32)
    return np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf))])


def assert_equal_at_every_step(rule: type, body: str, **constants: float) -> None:
    for scale, zero in itertools.product(SCALES, ZEROS):
        given = {"s": np.float32(scale), "z": zero, **{name: np.float32(v) for name, v in constants.items()}}
        graph = model(f"(float[3600] x) => (y) {{ {body}  y = QuantizeLinear(t, s, z) }}", **given)
        if not len(Rewriter([rule()], "site", deployment=False).candidates(graph)):
            continue
        feeds = {"x": every_step(scale, zero)}
        np.testing.assert_array_equal(
            run_onnxruntime(after(rule, graph), feeds)[0], run_onnxruntime(graph, feeds)[0], f"{scale} {zero}"
        )


@pytest.mark.parametrize("rule", [Q.QuantizeBeforeRelu, Q.QuantizeAroundRelu])
def test_relu_at_every_step(rule: type) -> None:
    assert_equal_at_every_step(rule, "t = Relu(x)")


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-1.0, 1.0), (-3.33, 1e9), (0.21, 0.21)])
def test_clip_at_every_step(low: float, high: float) -> None:
    assert_equal_at_every_step(Q.QuantizeBeforeClip, "t = Clip(x, l, h)", l=low, h=high)


def convolution(between: str, zero: np.integer, shape: str = "1,4,6,6") -> Graph:
    """A convolution of quantised operands, what stands between it and its quantisation, and that."""
    text = f"""(float[{shape}] x) => (y) {{
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  w = DequantizeLinear(wq, ws, wz)
        c = Conv<pads = [1, 1, 1, 1]>(d, w)  {between}  p = QuantizeLinear(t, s, z)  y = DequantizeLinear(p, s, z) }}"""
    filters = (40 * weights(4, 4, 3, 3)).astype(np.int8)
    given = {"s": np.float32(0.1), "z": zero, "ws": np.float32(0.02), "wz": np.int8(0), "wq": filters}
    limits = {"l": np.float32(0), "h": np.float32(6)} if "Clip" in between else {}
    return model(text, **given, **limits)


CHAINS = [
    (Q.QuantizeBeforeRelu, "t = Relu(c)", np.uint8(128), "Relu"),
    (Q.QuantizeAroundRelu, "t = Relu(c)", np.int8(0), ""),
    (Q.QuantizeBeforeClip, "t = Clip(c, l, h)", np.uint8(0), ""),
    (
        Q.QuantizeBeforeConcat,
        "b = DequantizeLinear(q, s, z)  e = Neg(b)  t = Concat<axis = 1>(c, e)",
        np.uint8(128),
        "",
    ),
    (Q.QuantizeBeforeMove, "t = Flatten(c)", np.uint8(128), ""),
    (Q.QuantizeBeforeMove, "t = DepthToSpace<blocksize = 2>(c)", np.uint8(128), ""),
]


@pytest.mark.parametrize(("rule", "between", "zero", "gone"), CHAINS)
def test_the_convolution_becomes_one_of_integers(rule: type, between: str, zero: np.integer, gone: str) -> None:
    graph = convolution(between, zero)
    changed = after(rule, graph)
    feeds = {"x": 3 * weights(1, 4, 6, 6, seed=5)}
    np.testing.assert_array_equal(run_onnxruntime(changed, feeds)[0], run_onnxruntime(graph, feeds)[0])
    assert not gone or gone not in ops(changed)
    before = optimized_ops(graph)
    assert not before["QLinearConv"], f"ONNX Runtime {onnxruntime.__version__} does it by itself"
    assert optimized_ops(changed)["QLinearConv"] == 1


def quantised(body: str, scale: object = np.float32(0.1), zero: object = np.int8(0), **given: object) -> Graph:
    return model(f"(float[2,4] x) => (y) {{ {body}  y = QuantizeLinear(t, s, z) }}", s=scale, z=zero, **given)


RELUS = (Q.QuantizeBeforeRelu, Q.QuantizeAroundRelu)


@pytest.mark.parametrize("rule", RELUS)
def test_what_onnxruntime_does_is_left_to_it(rule: type) -> None:
    refuses(rule, quantised("t = Relu(x)", zero=np.int8(-128)), "by itself")


def test_an_operand_that_is_quantised_is_not_quantised_again() -> None:
    refuses(Q.QuantizeAroundRelu, after(Q.QuantizeAroundRelu, quantised("t = Relu(x)")), "quantised already")
    refuses(Q.QuantizeAroundRelu, quantised("t = Relu(x)", zero=np.uint8(7)), "without a sign")


@pytest.mark.parametrize("rule", RELUS)
def test_scales_per_axis_and_other_integers_are_refused(rule: type) -> None:
    per_axis = quantised("t = Relu(x)", np.full(4, 0.1, np.float32), np.zeros(4, np.int8))
    refuses(rule, per_axis, "one scale")
    if rule is Q.QuantizeBeforeRelu:
        refuses(rule, quantised("t = Relu(x)", zero=np.int16(0)), "integers of 8 bits")
    refuses(rule, quantised("t = Relu(x)", np.float32(-0.1)), "not positive")


def test_bounds_that_rounding_decides_are_refused() -> None:
    limits = {"l": np.float32(0), "h": np.float32(0.75)}
    refuses(Q.QuantizeBeforeClip, quantised("t = Clip(x, l, h)", **limits), "halfway")
    wide = {"l": np.float32(0), "h": np.float32(np.inf)}
    refuses(Q.QuantizeBeforeClip, quantised("t = Clip(x, l, h)", **wide), "finite and in order")
    crossed = {"l": np.float32(1), "h": np.float32(-1)}
    refuses(Q.QuantizeBeforeClip, quantised("t = Clip(x, l, h)", **crossed), "finite and in order")


def test_a_clip_beyond_the_integers_goes() -> None:
    limits = {"l": np.float32(-100), "h": np.float32(100)}
    assert ops(after(Q.QuantizeBeforeClip, quantised("t = Clip(x, l, h)", **limits))) == ["QuantizeLinear"]


def test_constant_parts_of_a_concat_are_refused() -> None:
    refuses(Q.QuantizeBeforeConcat, quantised("t = Concat<axis = 0>(x, k)", k=weights(1, 4)), "constant")


def test_the_reference_saturates_numbers_of_any_size() -> None:
    x = np.array([1e30, -1e30, 12.34], np.float32)
    (found,) = run_operator("QuantizeLinear", "", {}, [x, np.float32(0.5), np.int8(3)], 23)
    assert found.tolist() == [127, -128, 28]
