"""Equivalence of two programs, position by position (PET, OSDI'21, section 5): a filter on few positions of each box,
and the proof on every position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.boxes import Box, Cuts, boxes_of, cuts_of, joined, merged, volume
from graph_rewrite.mutate.field import outputs_of, random_inputs
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.value_types import ValueType, types_of
from graph_rewrite.soundness.domains.limbs import P, Residues

TRIALS = 3
"""Random inputs, PET's t."""
PROOF_SEED = 11
"""Draws the inputs of proofs in certificates. Nothing is chosen by them."""
_LISTED = 100_000
"""Boxes of an output beyond which each position with a difference counts on its own."""

Mask = npt.NDArray[np.bool_]


class RandomTrials:
    """Outputs of an original program at random inputs, shared by all its mutants.

    Args:
        original: the program.
        shapes: the shapes of its inputs.
        seed: draws the inputs.
        trials: how many there are.
    """

    def __init__(self, original: TensorProgram, shapes: Sequence[Shape], seed: int = 0, trials: int = TRIALS) -> None:
        self.original, self.shapes = original, tuple(tuple(shape) for shape in shapes)
        self.types = types_of(original, self.shapes)
        self.cuts = cuts_of(original, self.shapes)
        self._seeds = [seed * 1000 + trial for trial in range(trials)]
        self._outputs: list[list[Residues] | None] = [None] * trials

    @property
    def count(self) -> int:
        """Return the number of random inputs."""
        return len(self._seeds)

    @property
    def output_types(self) -> list[ValueType]:
        """Return the types of the original's outputs."""
        return [self.types[value] for value in self.original.outputs]

    def inputs(self, trial: int) -> list[Residues]:
        """Return the random inputs of a trial."""
        return random_inputs(self.shapes, self._seeds[trial])

    def outputs(self, trial: int) -> list[Residues]:
        """Return what the original gives in a trial; computed once."""
        found = self._outputs[trial]
        if found is None:
            found = self._outputs[trial] = outputs_of(self.original, self.inputs(trial))
        return found

    def agreement(self, mutant: TensorProgram) -> Iterator[list[Mask]]:
        """Yield, trial by trial, the positions of each output at which a mutant agreed in all trials so far.

        Raises:
            DoesNotFit: the mutant does not take the inputs.
        """
        kept: list[Mask] | None = None
        for trial in range(self.count):
            made = outputs_of(mutant, self.inputs(trial))
            masks = [a == b for a, b in zip(self.outputs(trial), made, strict=True)]
            kept = masks if kept is None else [a & b for a, b in zip(kept, masks, strict=True)]
            yield kept


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The boxes of each output in which a mutant differs from the original.

    `shares` are the parts of the outputs' positions in them. `error` bounds the probability that a position outside
    of them differs after all (theorem 2, summed over positions); `positions` of them were compared in each of `trials`
    trials, and are polynomials of at most `degree`.
    """

    wrong: tuple[tuple[Box, ...], ...]
    shares: tuple[float, ...]
    positions: int
    degree: int
    trials: int
    error: float

    @property
    def exact(self) -> bool:
        """No output differs anywhere."""
        return not any(self.wrong)

    @property
    def share_wrong(self) -> float:
        """The part of all outputs' positions that differ, from 0 to 1; outputs count by their sizes."""
        return self.shares[0] if len(self.shares) == 1 else max(self.shares)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values: what a certificate holds of it."""
        return {
            "boxes": [[[list(side) for side in box] for box in boxes] for boxes in self.wrong],
            "share_wrong": self.shares, "positions": self.positions, "degree": self.degree,
            "trials": self.trials, "prime": P, "error_bound": self.error,
        }  # fmt: skip


def passes_filter(trials: RandomTrials, mutant: TensorProgram, keep: float = 0.25) -> bool:
    """Tell whether the boxes in which m + 1 positions agree hold at least a part `keep` of each output (theorem 1).

    A program of one sum of products that reads each input once agrees in all of a box if it agrees there. Others may
    not: x[3v] + x[v+1] and x[2v] + x[2v+1] agree at v = 0 and 1 and nowhere else. So this decides nothing but which
    mutants are worth a proof.
    """
    cuts = cuts_of(mutant, trials.shapes)
    for masks in trials.agreement(mutant):
        for mask, first, second in zip(masks, trials.cuts, cuts, strict=True):
            good = sum(
                volume(box) for box in boxes_of(joined(first, second), mask.shape)
                if all(mask[place] for place in corners(box))
            )  # fmt: skip
            if good < keep * mask.size:
                return False
    return True


def corners(box: Box) -> list[tuple[int, ...]]:
    """Return the m + 1 positions of theorem 1: the first one of a box, and the one after it along each axis; fewer
    where the box has one position along an axis."""
    first = tuple(start for start, _ in box)
    along = [
        (*first[:axis], start + 1, *first[axis + 1 :]) for axis, (start, stop) in enumerate(box) if stop - start > 1
    ]
    return [first, *along]


def prove(trials: RandomTrials, mutant: TensorProgram, keep: float = 0.0) -> Disagreement | None:
    """Compare every position of every output in all trials; None where less than a part `keep` of an output agrees.

    A position that is not in the boxes found is equal but for the error that the finding states.

    Raises:
        DoesNotFit: the mutant does not take the inputs of the original.
    """
    degree = max(value.degree for value in [*trials.types, *types_of(mutant, trials.shapes)])
    for masks in trials.agreement(mutant):
        if any(mask.sum() < keep * mask.size for mask in masks):
            return None
    cuts = cuts_of(mutant, trials.shapes)
    wrong = [
        wrong_boxes(mask, joined(first, second)) for mask, first, second in zip(masks, trials.cuts, cuts, strict=True)
    ]
    shares = tuple(
        sum(map(volume, boxes)) / max(mask.size, 1) for boxes, mask in zip(wrong, masks, strict=True)
    )  # fmt: skip
    if any(share > 1 - keep for share in shares):
        return None
    positions = sum(mask.size for mask in masks)
    error = min(1.0, positions * (degree / P) ** trials.count)
    return Disagreement(tuple(wrong), shares, positions, degree, trials.count, error)


def wrong_boxes(mask: Mask, cuts: Cuts) -> tuple[Box, ...]:
    """Return boxes that hold all positions at which a mask is False: whole boxes between split points, neighbours
    joined."""
    if mask.all():
        return ()
    if prod(len(axis) + 1 for axis in cuts) > _LISTED:
        cuts = tuple(_changes(mask, axis) for axis in range(mask.ndim))
    equal = reduce(
        lambda found, axis: np.logical_and.reduceat(found, [0, *cuts[axis]], axis=axis), range(mask.ndim), mask
    )  # fmt: skip
    edges = [(0, *axis, size) for axis, size in zip(cuts, mask.shape, strict=True)]
    places = np.argwhere(~equal)
    return tuple(
        merged(tuple((edges[i][k], edges[i][k + 1]) for i, k in enumerate(place)) for place in places.tolist())
    )


def _changes(mask: Mask, axis: int) -> tuple[int, ...]:
    """Return where neighbouring slices of a mask along an axis are not the same."""
    moved = np.moveaxis(mask, axis, 0).reshape(mask.shape[axis], -1)
    changed = np.flatnonzero((moved[1:] != moved[:-1]).any(axis=1)) + 1
    return tuple(int(place) for place in changed)
