"""Mutants of the paper as repair cases, with the boxes that are wrong, and checks of programs by other semantics than
the repairs use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.moves import LayoutMove, Move, Window
from graph_rewrite.mutate.onnx_form import as_graph
from graph_rewrite.mutate.program import Step, TensorProgram, program, step
from graph_rewrite.mutate.repairs import RepairCase
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.soundness.decision.identity_testing import Setting


def case_of(
    original: TensorProgram, mutant: TensorProgram, shapes: Sequence[Shape], constants: frozenset[int] = frozenset()
) -> RepairCase:
    """Return a case with the boxes that a proof finds."""
    trials = RandomTrials(original, shapes)
    finding = prove(trials, mutant)
    assert finding is not None
    return RepairCase(trials, mutant, finding.wrong, constants)


def is_equal(case: RepairCase, repaired: TensorProgram) -> bool:
    """Tell whether a program is equal to the original at every position: as ONNX operators in float64, and over a prime
    field by the semantics of `graph_rewrite.soundness`."""
    before, after = as_graph(case.original, case.shapes), as_graph(repaired, case.shapes)
    rng = np.random.default_rng(0)
    feeds = {f"x{i}": rng.normal(size=shape) for i, shape in enumerate(case.shapes)}
    pairs = zip(run_graph(before, feeds), run_graph(after, feeds), strict=True)
    close = all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in pairs)
    same = Setting(before, after, True, frozenset(), frozenset()).compare(0).equal
    assert close == same, "float64 and the prime field disagree"
    return close


def is_proved(case: RepairCase, repaired: TensorProgram) -> bool:
    """Tell whether the proof that `choose` demands accepts a program."""
    finding = prove(RandomTrials(case.original, case.shapes, seed=5), repaired)
    return finding is not None and finding.exact


def conv(x: int, w: int, *bias: int, pads: tuple[int, ...], **params: tuple[int, ...]) -> Step:
    rank = len(pads) // 2
    return step("conv", x, w, *bias, pads=pads, **{"strides": (1,) * rank, "dilations": (1,) * rank, **params})


def layout(value: int, *moves: LayoutMove) -> Step:
    return step("layout", value, chain=moves)


def merged_batch(axis: int, shapes: Sequence[Shape] = ((2, 2, 4, 5), (3, 2, 3, 3)), **params: Any) -> RepairCase:
    """Two images become one along an axis (figure 1 for the width)."""
    pads = params.pop("pads", (1, 1, 1, 1))
    merge = Move(0, "outer", axis, "outer", 2)
    mutant = program(2, [layout(0, merge), conv(2, 1, pads=pads), layout(3, merge.undone())])
    return case_of(program(2, [conv(0, 1, pads=pads)]), mutant, shapes)


def merged_chain() -> RepairCase:
    """Two convolutions with biases in a row stay merged along the width."""
    pads, merge = (1, 1, 1, 1), Move(0, "outer", 3, "outer", 2)
    original = program(5, [conv(0, 1, 2, pads=pads), conv(5, 3, 4, pads=pads)])
    steps = [layout(0, merge), conv(5, 1, 2, pads=pads), conv(6, 3, 4, pads=pads), layout(7, merge.undone())]
    return case_of(original, program(5, steps), ((4, 2, 3, 6), (2, 2, 3, 3), (2,), (3, 2, 3, 3), (3,)))


def merged_residual() -> RepairCase:
    """A scaled convolution and a residual stay merged along the width, and so does what reads their sum."""
    pads, merge = (1, 1, 1, 1), Move(0, "outer", 3, "outer", 2)
    steps = [conv(0, 1, pads=pads), step("mul", 4, 3), step("add", 5, 2), conv(6, 1, pads=pads)]
    merged = [
        layout(0, merge), layout(2, merge), conv(4, 1, pads=pads), step("mul", 6, 3), step("add", 7, 5),
        conv(8, 1, pads=pads), layout(9, merge.undone()),
    ]  # fmt: skip
    shapes = ((2, 2, 3, 6), (2, 2, 3, 3), (2, 2, 3, 6), (2, 1, 1))
    return case_of(program(4, steps), program(4, merged), shapes)


def dilated(shape: Shape = (1, 2, 6, 8), kernel: Shape = (3, 3)) -> RepairCase:
    """A dilated convolution becomes a dense one over interleaved images (figure 3)."""
    original = program(2, [conv(0, 1, pads=(2, 2, 2, 2), dilations=(2, 2))])
    apart = Move(2, "inner", 2, "outer", 2), Move(3, "inner", 3, "outer", 2)
    back = layout(3, *(move.undone() for move in reversed(apart)))
    return case_of(
        original, program(2, [layout(0, *apart), conv(2, 1, pads=(1, 1, 1, 1)), back]), (shape, (2, 2, *kernel))
    )


def dilated_odd() -> RepairCase:
    """The same where the dilation does not divide the image: zeros fill it, and a window takes them away."""
    shape = (1, 2, 5, 7)
    original = program(2, [conv(0, 1, pads=(2, 2, 2, 2), dilations=(2, 2))])
    apart = Move(2, "inner", 2, "outer", 2), Move(3, "inner", 3, "outer", 2)
    back = layout(3, *(move.undone() for move in reversed(apart)), Window((0, 0, 0, 0), (1, 2, 5, 7)))
    return case_of(
        original, program(2, [layout(0, *apart), conv(2, 1, pads=(1, 1, 1, 1)), back]), (shape, (2, 2, 3, 3))
    )


def strided() -> RepairCase:
    """A stride becomes channels; the first row and the first column are zero."""
    original = program(2, [conv(0, 1, pads=(1, 1, 1, 1), strides=(2, 2))])
    deep = Move(2, "inner", 1, "outer", 2), Move(3, "inner", 1, "outer", 2)
    steps = [
        layout(0, *deep), layout(1, Window((0, 0, -1, -1), (3, 2, 4, 4)), *deep),
        conv(2, 3, pads=(0, 0, 1, 1)), layout(4, Window((0, 0, -1, -1), (2, 3, 4, 5))),
    ]  # fmt: skip
    return case_of(original, program(2, steps), ((2, 2, 8, 10), (3, 2, 3, 3)))


def split(stride: int = 1) -> RepairCase:
    """An image becomes four of a batch, as [1,48,38,38] becomes [16,48,10,10] (table 4)."""
    pads, strides = (2, 2, 2, 2), (stride, stride)
    original = program(2, [conv(0, 1, pads=pads, strides=strides)])
    apart = Move(2, "outer", 0, "outer", 2), Move(3, "outer", 0, "outer", 2)
    size = (1, 3, *(-(-side // stride) for side in (7, 10)))
    back = layout(3, *(move.undone() for move in reversed(apart)), Window((0, 0, 0, 0), size))
    mutant = program(2, [layout(0, *apart), conv(2, 1, pads=pads, strides=strides), back])
    return case_of(original, mutant, ((1, 2, 7, 10), (3, 2, 5, 5)))


def pooled() -> RepairCase:
    """An average that does not count the border becomes one that does."""
    params = {"kernel": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)}
    original, mutant = (program(1, [step("pool", 0, counted=counted, **params)]) for counted in (0, 1))
    return case_of(original, mutant, ((2, 2, 4, 6),))


def shifted_input() -> RepairCase:
    """A constant is added before a convolution, and left out."""
    original = program(3, [step("add", 0, 2), conv(3, 1, pads=(1, 1, 1, 1))])
    mutant = program(3, [conv(0, 1, pads=(1, 1, 1, 1))])
    return case_of(original, mutant, ((2, 2, 4, 5), (3, 2, 3, 3), (1, 2, 1, 1)), frozenset((1, 2)))
