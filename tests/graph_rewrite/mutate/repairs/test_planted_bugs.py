"""Repairs with one bug each: the proof that `choose` demands refuses every one of them, and so do other semantics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graph_rewrite.layouts import Crop, Pad
from graph_rewrite.mutate.moves import LayoutMove, Move, Window
from graph_rewrite.mutate.program import Step, TensorProgram, step
from graph_rewrite.mutate.repairs import Repair, RepairCase, gap_repair, halo_repair, map_repair
from graph_rewrite.mutate.repairs.recompute import by_adding, by_joining, recomputed
from tests.graph_rewrite.mutate.repairs.cases import (
    dilated,
    is_equal,
    is_proved,
    merged_batch,
    merged_chain,
    pooled,
    shifted_input,
    split,
    strided,
)

Bug = Callable[[TensorProgram], TensorProgram]


def at(op: str, place: int, change: Callable[[Step], Step]) -> Bug:
    """Return a bug in one of the steps of an operator."""

    def planted(program: TensorProgram) -> TensorProgram:
        number = [i for i, each in enumerate(program.steps) if each.op == op][place]
        steps = list(program.steps)
        steps[number] = change(steps[number])
        assert steps[number] != program.steps[number], "the bug changes nothing"
        return TensorProgram(program.count, tuple(steps), program.outputs)

    return planted


def moved(place: int, kind: type, change: Callable[[Any], LayoutMove | None], number: int = 0) -> Bug:
    """Return a bug in a move of a layout; the change may leave it out."""

    def changed(each: Step) -> Step:
        chain = list(each.chain)
        index = [i for i, move in enumerate(chain) if isinstance(move, kind)][number]
        made = change(chain[index])
        chain[index : index + 1] = [] if made is None else [made]
        return step("layout", *each.inputs, chain=tuple(chain))

    return at("layout", place, changed)


def with_params(**changes: Callable[[Any], Any]) -> Callable[[Step], Step]:
    """Return the change of some parameters of a step."""

    def changed(each: Step) -> Step:
        params = dict(each.params)
        return step(each.op, *each.inputs, **{**params, **{k: change(params[k]) for k, change in changes.items()}})

    return changed


def numbers(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Step], Step]:
    """Return the change of the numbers of a constant."""

    def changed(each: Step) -> Step:
        made = change(np.array(each.param("numerators")).reshape(each.param("shape")))
        params = {**dict(each.params), "numerators": tuple(made.reshape(-1).tolist()), "shape": made.shape}
        return step("constant", *each.inputs, **params)

    return changed


def shifted(axis: int, by: int) -> Callable[[Window], Window]:
    return lambda window: replace(window, start=tuple(a + by if i == axis else a for i, a in enumerate(window.start)))


def bypassed(op: str) -> Bug:
    """Return the bug of leaving a mask or map out: its operand goes on."""

    def planted(program: TensorProgram) -> TensorProgram:
        [number] = [i for i, each in enumerate(program.steps) if each.op == op]
        value, operand = program.count + number, program.steps[number].inputs[0]
        steps = [
            Step(each.op, tuple(operand if v == value else v for v in each.inputs), each.params)
            for each in program.steps
        ]
        return TensorProgram(program.count, tuple(steps), tuple(operand if v == value else v for v in program.outputs))

    return planted


def operands(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Callable[[Step], Step]:
    return lambda each: Step(each.op, change(each.inputs), each.params)


def off_by_one(side: int, by: int, place: int = 0, number: int = 0) -> Callable[[RepairCase], RepairCase]:
    """Return the change that moves a border of a wrong box, so that part of it is not computed again."""

    def changed(case: RepairCase) -> RepairCase:
        [boxes] = case.wrong
        box = boxes[number]
        start, stop = box[side]
        smaller = (start + by, stop) if place == 0 else (start, stop - by)
        return replace(case, wrong=((*boxes[:number], (*box[:side], smaller, *box[side + 1 :]), *boxes[number + 1 :]),))

    return changed


def by_repair(
    method: Callable[..., Any], case: Callable[[], RepairCase]
) -> Callable[[], tuple[RepairCase, TensorProgram]]:
    def made() -> tuple[RepairCase, TensorProgram]:
        found = case()
        repair = method(found, lambda program: len(program.steps))
        assert isinstance(repair, Repair)
        return found, repair.program

    return made


def again(
    case: Callable[[], RepairCase], together: bool, place: Any, change: Callable[[RepairCase], RepairCase] = lambda c: c
) -> Callable[[], tuple[RepairCase, TensorProgram]]:
    def made() -> tuple[RepairCase, TensorProgram]:
        found = case()
        return found, recomputed(change(found), together, place)

    return made


def width() -> RepairCase:
    return merged_batch(3)


def exchanged(pads: tuple[int, ...]) -> tuple[int, ...]:
    return (*pads[2:], *pads[:2])


def turned(pads: tuple[int, ...]) -> tuple[int, ...]:
    return (*pads[1::-1], *pads[:1:-1])


UNEVEN = ((4, 2, 6, 5), (3, 2, 5, 5))
gap, halo = by_repair(gap_repair, width), by_repair(halo_repair, split)
uneven = by_repair(gap_repair, lambda: merged_batch(2, UNEVEN, pads=(1, 0, 3, 4)))
chain, interleaved = by_repair(gap_repair, merged_chain), by_repair(gap_repair, dilated)
average, added = by_repair(map_repair, pooled), by_repair(map_repair, shifted_input)
fused, apart = again(width, True, by_joining), again(width, False, by_joining)
summed = again(width, False, by_adding)
same: Bug = lambda program: program  # noqa: E731

BUGS: dict[str, tuple[Callable[[], tuple[RepairCase, TensorProgram]], Bug]] = {
    "gap before the images": (gap, moved(0, Pad, lambda pad: Pad(pad.axis, pad.after, 0))),
    "gap along the other axis": (
        by_repair(gap_repair, lambda: merged_batch(3, ((2, 2, 5, 5), (3, 2, 3, 3)))),
        lambda program: moved(1, Crop, lambda crop: Crop(2, 0, 1))(moved(0, Pad, lambda pad: Pad(2, 0, 1))(program)),
    ),
    "gap taken from the wrong end": (gap, moved(1, Crop, lambda crop: Crop(crop.axis, crop.after, 0))),
    "gap too small": (
        by_repair(gap_repair, lambda: merged_batch(3, UNEVEN, pads=(2, 2, 2, 2))),
        lambda program: moved(1, Crop, lambda crop: Crop(3, 0, 1))(moved(0, Pad, lambda pad: Pad(3, 0, 1))(program)),
    ),
    "images in the wrong order": (gap, moved(1, Move, lambda move: replace(move, part="inner"))),
    "pads of the two ends exchanged": (uneven, at("conv", 0, with_params(pads=exchanged))),
    "pads of the two axes exchanged": (uneven, at("conv", 0, with_params(pads=turned))),
    "gap of one of two axes left out": (
        interleaved,
        lambda program: moved(1, Crop, lambda crop: None)(moved(0, Pad, lambda pad: None, 1)(program)),
    ),
    "mask left out": (chain, bypassed("mul")),
    "mask off by one": (chain, at("constant", 0, numbers(lambda mask: np.roll(mask, 1)))),
    "mask inverted": (chain, at("constant", 0, numbers(lambda mask: 1 - mask))),
    "mask of one gap only": (
        chain,
        at("constant", 0, numbers(lambda mask: np.maximum(mask, np.arange(mask.size) < 7))),
    ),
    "mask on the wrong axis": (
        chain,
        at(
            "constant",
            0,
            numbers(lambda mask: mask[..., :3].reshape(1, 1, 3, 1) * 0 + np.array([1, 1, 0]).reshape(1, 1, 3, 1)),
        ),
    ),
    "mask on the channels": (chain, at("constant", 0, numbers(lambda mask: np.array([1, 0]).reshape(1, 2, 1, 1)))),
    "halo of one side too wide": (halo, moved(0, Pad, lambda pad: Pad(pad.axis, pad.before + 1, pad.after - 1))),
    "zeros around the tiles as well": (halo, at("conv", 0, with_params(pads=lambda pads: (1, 0, 0, 0)))),
    "tiles put back in the wrong order": (
        halo,
        at("layout", 1, lambda each: step("layout", *each.inputs, chain=(*each.chain[1::-1], *each.chain[2:]))),
    ),
    "tiles put back along the wrong place": (halo, moved(1, Move, lambda move: replace(move, place="inner"))),
    "window of the result off by one": (halo, moved(1, Window, shifted(3, 1))),
    "slice off by one row": (apart, moved(2, Window, shifted(2, 1))),
    "slice off by one column": (apart, moved(2, Window, shifted(3, -1))),
    "slice of the other image": (apart, moved(2, Window, shifted(0, 1))),
    "box too small at its start": (again(strided, False, by_joining, off_by_one(3, 1)), same),
    "box too small at its end": (again(strided, False, by_joining, off_by_one(2, 1, place=1, number=1)), same),
    "box of one image only": (again(strided, False, by_adding, off_by_one(0, 1)), same),
    "boxes computed together taken in the wrong order": (fused, at("concat", 0, operands(lambda values: values[::-1]))),
    "parts joined in the wrong order": (fused, at("concat", -1, operands(lambda values: values[::-1]))),
    "zeros at the other end of a slice": (
        again(strided, False, by_joining),
        at("conv", -1, with_params(pads=exchanged)),
    ),
    "dilations forgotten": (
        again(dilated, False, by_adding),
        at(
            "conv",
            -1,
            with_params(
                pads=lambda pads: (max(pads[0] - 2, 0), pads[1], max(pads[2] - 2, 0), pads[3]),
                dilations=lambda d: (1, 2),
            ),
        ),
    ),
    "mask of the boxes left out": (summed, bypassed("mul")),
    "patch left out": (summed, at("add", -1, operands(lambda values: (values[0], values[0])))),
    "patch off by one": (summed, moved(-1, Window, shifted(2, 1))),
    "factor of a corner on all of the border": (
        average,
        at("constant", 0, numbers(lambda factors: np.where(factors > 4, 9, 4))),
    ),
    "factors along one axis only": (average, at("constant", 0, numbers(lambda factors: factors[:, :, 1:2]))),
    "map left out": (average, bypassed("mul")),
    "map added, not multiplied": (average, at("mul", 0, lambda each: step("add", *each.inputs))),
    "difference without the result": (added, at("add", -1, operands(lambda values: (values[1], values[1])))),
}


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught(name: str) -> None:
    make, plant = BUGS[name]
    case, right = make()
    wrong = plant(right)
    if plant is not same:
        assert is_proved(case, right)
    assert not is_proved(case, wrong)
    assert not is_equal(case, wrong)
