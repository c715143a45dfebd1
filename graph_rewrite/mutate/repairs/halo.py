"""Halo: images that a mutant splits into a batch of parts get copies of the neighbouring lines that windows read."""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.layouts import Crop, Pad
from graph_rewrite.mutate.moves import Chain, LayoutMove, Move, Tiles
from graph_rewrite.mutate.program import Step
from graph_rewrite.mutate.repairs.rearranged import NotRepaired, Reach, Rearranged, kernel_of, reach_of, uses_as_image
from graph_rewrite.mutate.repairs.repair import Cost, Repair, RepairCase, cheapest
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal


@dataclass(frozen=True, slots=True)
class Tiled:
    """The moves of a layout, and the axes whose tiles still have their halo."""

    moves: tuple[Move | Tiles, ...]
    halos: frozenset[int]


def halo_repair(case: RepairCase, cost: Cost) -> Repair | Refusal:
    """Return the mutant with tiles that overlap where it splits images."""
    if not any(case.wrong):
        return Refusal("nothing is wrong")
    try:
        return cheapest("halo", [_WithHalos(case).program()], cost, "")
    except NotRepaired as error:
        return Refusal(str(error))


class _WithHalos(Rearranged[Tiled]):
    nothing = "no images are split"

    def arrange(self, number: int, value: int, chain: Chain) -> tuple[int, Tiled] | None:
        readers = uses_as_image(self.case.mutant, number)
        if not any(_is_split(move) for move in chain) or not readers:
            return None
        reader, shapes = readers[0], types_of(self.case.mutant, self.case.shapes)
        kernel = kernel_of(reader, shapes[reader.inputs[-1 if reader.op == "pool" else 1]].shape)
        moves: list[Move | Tiles] = []
        halos = set[int]()
        for move in chain:
            if isinstance(move, Move) and _is_split(move):
                if move.source in halos:
                    raise NotRepaired("images are split along one axis twice")
                tiles, steps = _tiles(move, self.draft.shape(value)[move.source], reach_of(reader, kernel, move.source))
                value = self.draft.layout(value, *steps)
                moves.append(tiles)
                halos.add(move.source)
                continue
            if isinstance(move, (Move, Tiles)):
                moves.append(move)
            value = self.draft.layout(value, move)
        return self.draft.as_one_layout(value), Tiled(tuple(moves), frozenset(halos))

    def windowed(self, step: Step, operands: list[int], arrangement: Tiled) -> tuple[int, Tiled]:
        kernel = kernel_of(step, self.draft.shape(operands[-1 if step.op == "pool" else 1]))
        params = dict(step.params)
        pads = list(params["pads"])
        for axis in [move.source for move in arrangement.moves if isinstance(move, Tiles)]:
            windows = reach_of(step, kernel, axis)
            if axis not in arrangement.halos and (windows.reach or windows.before or windows.after):
                raise NotRepaired("a second operator needs a halo of its own")
            if step.op == "pool" and not step.param("counted") and (windows.before or windows.after):
                raise NotRepaired("an average would count the zeros around the image")
            pads[axis - 2] = pads[len(kernel) + axis - 2] = 0
        params["pads"] = tuple(pads)
        return self.draft.add(step.op, *operands, **params), Tiled(arrangement.moves, frozenset())

    def paired(self, step: Step, operands: list[int], arrangements: list[Tiled | None]) -> tuple[int, Tiled]:
        known = [each for each in arrangements if each is not None]
        if len(set(known)) > 1:
            raise NotRepaired("images that are split in different ways meet")
        rank = max(len(self.draft.shape(value)) for value in operands)
        for value, each in zip(operands, arrangements, strict=True):
            shape = self.draft.shape(value)
            axes = [axis - rank for move in known[0].moves for axis in (move.source, move.target)]
            if each is None and any(-axis <= len(shape) and shape[axis] > 1 for axis in axes):
                raise NotRepaired("what meets split images varies along their axes")
        return self.draft.add_step(Step(step.op, tuple(operands), step.params)), known[0]

    def back(self, arrangement: Tiled) -> Chain:
        return tuple(move.undone() for move in reversed(arrangement.moves))


def _is_split(move: LayoutMove) -> bool:
    """Tell whether a move makes parts of an image, one after the other along a spatial axis, a batch."""
    return isinstance(move, Move) and move.source >= 2 and (move.part, move.target, move.place) == ("outer", 0, "outer")


def _tiles(move: Move, size: int, windows: Reach) -> tuple[Tiles, list[LayoutMove]]:
    """Return tiles of an axis of this size that each hold what whole windows read, and the moves that make them."""
    axis, overlap = move.source, windows.reach + 1 - windows.stride
    if overlap < 0:
        raise NotRepaired("windows leave positions out")
    results = (size + windows.before + windows.after - windows.reach - 1) // windows.stride + 1
    each = -(-results // move.factor)
    after = each * windows.stride * move.factor + overlap - size - windows.before
    tiles = Tiles(axis, move.factor, overlap, 0)
    steps: list[LayoutMove] = []
    if windows.before or after > 0:
        steps.append(Pad(axis, windows.before, max(after, 0)))
    if after < 0:
        steps.append(Crop(axis, 0, -after))
    return tiles, [*steps, tiles]
