"""Gap: zeros between images that a mutant merges along an axis, so that no window reads two of them.

After an operator the gap holds what windows across it gave. It is zeroed again by a mask before the next operator
reads it, so that a chain stays merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graph_rewrite.layouts import Crop, Pad, Primitive
from graph_rewrite.mutate.moves import Chain, LayoutMove, Move, Window
from graph_rewrite.mutate.program import Step
from graph_rewrite.mutate.repairs.rearranged import NotRepaired, Rearranged, is_filter, kernel_of, reach_of
from graph_rewrite.mutate.repairs.repair import Cost, Repair, RepairCase, cheapest
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal


@dataclass(frozen=True, slots=True)
class Merge:
    """`count` images along an axis: one every `pitch` positions, of which the first `size` are its own."""

    move: Move
    pitch: int
    size: int

    @property
    def axis(self) -> int:
        return self.move.target

    @property
    def count(self) -> int:
        return self.move.factor

    def apart(self) -> Chain:
        """Return the moves that take the images apart, without the gap."""
        crop = (Crop(self.axis, 0, self.pitch - self.size),) if self.pitch > self.size else ()
        if self.move.source != self.axis:
            return (self.move.undone(), *crop)
        out = Move(self.axis, "outer", 0, "outer", self.count)
        return (out, *crop, Move(0, "outer", self.axis, self.move.part, self.count))


@dataclass(frozen=True, slots=True)
class Merged:
    """The moves of a layout, merges among them. `dirty`: the gaps are not zero."""

    moves: tuple[Move | Merge, ...]
    dirty: bool = False

    @property
    def merges(self) -> list[Merge]:
        return [move for move in self.moves if isinstance(move, Merge)]

    def resized(self, sizes: dict[int, int]) -> Merged:
        """Return the same with images of other sizes by axis, and with dirty gaps."""
        moves = tuple(replace(m, size=sizes[m.axis]) if isinstance(m, Merge) else m for m in self.moves)
        return Merged(moves, dirty=True)


def gap_repair(case: RepairCase, cost: Cost) -> Repair | Refusal:
    """Return the mutant with zeros between merged images."""
    if not any(case.wrong):
        return Refusal("nothing is wrong")
    try:
        return cheapest("gap", [_WithGaps(case).program()], cost, "")
    except NotRepaired as error:
        return Refusal(str(error))


class _WithGaps(Rearranged[Merged]):
    nothing = "no images are merged"

    def __init__(self, case: RepairCase) -> None:
        super().__init__(case)
        self._shapes = [type.shape for type in types_of(case.mutant, case.shapes)]
        self._gaps = self._widest()

    def _widest(self) -> dict[int, int]:
        """Return, by axis, the zeros that the windows of all operators need between two images."""
        gaps: dict[int, int] = {}
        for step in self.case.mutant.steps:
            if step.op in ("conv", "pool"):
                kernel = kernel_of(step, self._shapes[step.inputs[-1 if step.op == "pool" else 1]])
                for axis in range(2, 2 + len(kernel)):
                    windows = reach_of(step, kernel, axis)
                    gaps[axis] = max(gaps.get(axis, 0), windows.before, windows.reach - windows.before)
        return gaps

    def arrange(self, number: int, value: int, chain: Chain) -> tuple[int, Merged] | None:
        mutant = self.case.mutant
        if not any(_is_merge(move) for move in chain) or is_filter(mutant, number) or number in mutant.outputs:
            return None
        moves: list[Move | Merge] = []
        for move in chain:
            if not isinstance(move, Move):
                if not isinstance(move, (Window, Primitive)):
                    raise NotRepaired("images are tiled and merged")
                value = self.draft.layout(value, move)
            elif _is_merge(move):
                if any(isinstance(each, Merge) and each.axis == move.target for each in moves):
                    raise NotRepaired("images are merged along one axis twice")
                value, merge = self._merged(value, move)
                moves.append(merge)
            else:
                value = self.draft.layout(value, move)
                moves.append(move)
        return self.draft.as_one_layout(value), Merged(tuple(moves))

    def _merged(self, value: int, move: Move) -> tuple[int, Merge]:
        axis, gap = move.target, self._gaps.get(move.target, 0)
        if move.source == axis:
            # Every position belongs to another image: they become a batch, get their gap, and are joined.
            value = self.draft.layout(value, replace(move, target=0, place="outer"))
            move_in = Move(0, "outer", axis, "outer", move.factor)
        else:
            move_in = move
        size = self.draft.shape(value)[axis]
        steps: tuple[LayoutMove, ...] = (Pad(axis, 0, gap), move_in) if gap else (move_in,)
        return self.draft.layout(value, *steps), Merge(move, size + gap, size)

    def windowed(self, step: Step, operands: list[int], arrangement: Merged) -> tuple[int, Merged]:
        if step.op == "pool" and not step.param("counted"):
            raise NotRepaired("an average would count the zeros of the gap")
        kernel = kernel_of(step, self.draft.shape(operands[-1 if step.op == "pool" else 1]))
        params, sizes = dict(step.params), {}
        pads = list(params["pads"])
        for merge in arrangement.merges:
            windows = reach_of(step, kernel, merge.axis)
            if windows.stride > 1:
                raise NotRepaired("an operator has strides along the merged images")
            size = merge.size + windows.before + windows.after - windows.reach
            if not 0 < size <= merge.pitch or windows.before > windows.reach:
                raise NotRepaired("an operator's result does not fit into the images' places")
            # As many zeros as keep the places of the images: windows start where they did.
            pads[len(kernel) + merge.axis - 2] = windows.reach - windows.before
            sizes[merge.axis] = size
        image = self._clean(operands[0], arrangement)
        params["pads"] = tuple(pads)
        return self.draft.add(step.op, image, *operands[1:], **params), arrangement.resized(sizes)

    def _clean(self, value: int, arrangement: Merged) -> int:
        """Return a merged value with zeros in its gaps."""
        if not arrangement.dirty:
            return value
        for merge in arrangement.merges:
            kept = np.tile(np.arange(merge.pitch) < merge.size, merge.count).astype(np.int64)
            shape = [1] * len(self.draft.shape(value))
            shape[merge.axis] = kept.size
            if not kept.all():
                value = self.draft.add("mul", value, self.draft.constant(value, kept.reshape(shape)))
        return value

    def paired(self, step: Step, operands: list[int], arrangements: list[Merged | None]) -> tuple[int, Merged]:
        known = [each for each in arrangements if each is not None]
        if len({each.moves for each in known}) > 1:
            raise NotRepaired("images that are merged in different ways meet")
        for value, each in zip(operands, arrangements, strict=True):
            shape = self.draft.shape(value)
            rank = max(len(self.draft.shape(other)) for other in operands)
            axes = [merge.axis - rank for merge in known[0].merges]
            if each is None and any(-axis <= len(shape) and shape[axis] > 1 for axis in axes):
                raise NotRepaired("what meets merged images varies along their axis")
        made = self.draft.add_step(Step(step.op, tuple(operands), step.params))
        dirty = any(each.dirty for each in known) or (step.op == "add" and len(known) < len(arrangements))
        return made, replace(known[0], dirty=dirty)

    def back(self, arrangement: Merged) -> Chain:
        moves: list[LayoutMove] = []
        for move in reversed(arrangement.moves):
            moves += move.apart() if isinstance(move, Merge) else (move.undone(),)
        return tuple(moves)


def _is_merge(move: LayoutMove) -> bool:
    """Tell whether a move puts whole images one after the other along a spatial axis."""
    return isinstance(move, Move) and move.target >= 2 and move.place == "outer"
