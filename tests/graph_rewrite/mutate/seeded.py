"""Seeded mutants: those that the proof accepts are evaluated at every position over a second prime.

python -m tests.graph_rewrite.mutate.seeded --mutants 10000
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tyro

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.equivalence import Disagreement, RandomTrials, prove
from graph_rewrite.mutate.moves import DoesNotFit, LayoutMove, Move, Tiles, Window, layout_of
from graph_rewrite.mutate.program import Step, TensorProgram, program, step
from graph_rewrite.mutate.value_types import types_of
from tests.graph_rewrite.mutate.programs import CONV, DILATED, conv, layout, random_chain, values_modulo

SECOND_PRIME = 2**31 - 19
Original = tuple[TensorProgram, tuple[Shape, ...]]
ONE_SUM: list[Original] = [
    (CONV, ((2, 2, 6, 6), (2, 2, 3, 3))),
    (CONV, ((1, 4, 6, 5), (4, 2, 3, 3))),
    (DILATED, ((1, 1, 8, 8), (2, 1, 3, 3))),
    (program(2, [conv(0, 1, stride=2)]), ((1, 2, 8, 8), (2, 2, 3, 3))),
]
"""Programs of one sum of products that read each input once."""
_AVERAGE = step("pool", 0, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, counted=1)
SEVERAL_SUMS: list[Original] = [
    (program(2, [conv(0, 1), step("add", 2, 0)]), ((2, 2, 6, 6), (2, 2, 3, 3))),
    (program(2, [conv(0, 1), conv(0, 1, dilation=2, pad=2), step("add", 2, 3)]), ((1, 2, 8, 6), (2, 2, 3, 3))),
    (program(2, [_AVERAGE, conv(2, 1, pad=0), step("add", 3, 2)]), ((2, 2, 6, 4), (2, 2, 1, 1))),
    (program(2, [step("matmul", 0, 1), step("add", 2, 0)]), ((2, 4, 4), (2, 4, 4))),
    (program(2, [conv(0, 1), step("concat", 2, 0, axis=1)]), ((2, 2, 4, 6), (2, 2, 3, 3))),
]
"""Programs that read an input on several paths: m + 1 positions do not decide these."""
ORIGINALS = [*ONE_SUM, *SEVERAL_SUMS]


def seeded_mutant(
    seed: int, originals: Sequence[Original] = ORIGINALS
) -> tuple[TensorProgram, tuple[Shape, ...], TensorProgram] | None:
    """An original, its shapes and a mutant: the original's operators, some with other parameters, over random layouts
    of its inputs, and as a rule the first layout undone after them."""
    rng = np.random.default_rng(seed)
    original, shapes = originals[int(rng.integers(0, len(originals)))]
    before = random_chain(rng, shapes[0])
    filters = random_chain(rng, shapes[1]) if rng.integers(0, 6) == 0 else ()
    target = types_of(original, shapes)[-1].shape
    steps = [layout(0, *before), layout(1, *filters)]
    for own in original.steps:
        changed = _changed(rng, own) if own.op == "conv" and rng.integers(0, 3) else own
        steps.append(Step(own.op, tuple(value + 2 for value in own.inputs), changed.params))
    try:
        made = types_of(program(2, steps), shapes)[-1].shape
        back: list[LayoutMove] = [m.undone() for m in reversed(before) if isinstance(m, Move | Tiles)]
        if rng.integers(0, 8) == 0:
            back = list(random_chain(rng, made))
        start = tuple(int(i) for i in rng.choice([0, 0, 0, 1, -1], len(target)))
        after = layout_of(tuple(back), made).shape
        back += [Window(start, target)] if after != target or rng.integers(0, 4) == 0 else []
        mutant = program(2, [*steps, layout(1 + len(steps), *back)])
        types_of(mutant, shapes)
    except (DoesNotFit, LayoutError):
        return None
    return original, shapes, mutant


def _changed(rng: np.random.Generator, own: Step) -> Step:
    """A convolution with other strides, dilations or pads, perhaps."""
    return conv(
        *own.inputs, stride=int(rng.choice([own.param("strides")[0], 1])),
        dilation=int(rng.choice([own.param("dilations")[0], 1])),
        pad=tuple(int(size) for size in rng.choice([own.param("pads")[0], 0, 1], 4)) if rng.integers(0, 2)
        else own.param("pads"),
    )  # fmt: skip


def refuted(
    original: TensorProgram, shapes: tuple[Shape, ...], mutant: TensorProgram, finding: Disagreement, seed: int
) -> bool:
    """Tell whether a position outside of the boxes found differs over the second prime."""
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(0, SECOND_PRIME, shape) for shape in shapes]
    pairs = zip(
        values_modulo(SECOND_PRIME, original, inputs), values_modulo(SECOND_PRIME, mutant, inputs), strict=True
    )  # fmt: skip
    for (a, b), boxes in zip(pairs, finding.wrong, strict=True):
        equal = a == b
        for box in boxes:
            equal[tuple(slice(*side) for side in box)] = True
        if not equal.all():
            return True
    return False


@dataclass
class Count:
    """Numbers of seeded mutants by what became of them."""

    mutants: int = 0
    accepted: int = 0
    exact: int = 0
    refuted: list[int] | None = None


def count(mutants: int, keep: float = 0.25, originals: Sequence[Original] = ORIGINALS) -> Count:
    """Prove so many mutants; list the seeds of those that are accepted wrongly."""
    found = Count(refuted=[])
    assert found.refuted is not None
    for seed, (original, shapes, mutant) in _mutants(originals):
        if found.mutants == mutants:
            break
        found.mutants += 1
        finding = prove(RandomTrials(original, shapes, seed=seed), mutant, keep)
        if finding is not None:
            found.accepted += 1
            found.exact += finding.exact
            if refuted(original, shapes, mutant, finding, seed):
                found.refuted.append(seed)
    return found


def _mutants(
    originals: Sequence[Original],
) -> Iterator[tuple[int, tuple[TensorProgram, tuple[Shape, ...], TensorProgram]]]:
    seed = 0
    while True:
        made = seeded_mutant(seed, originals)
        if made is not None:
            yield seed, made
        seed += 1


def main(mutants: int = 10_000) -> None:
    """Count the seeded mutants that are accepted, and end with status 1 where one is accepted wrongly."""
    found = count(mutants)
    print(found)
    raise SystemExit(1 if found.refuted else 0)


if __name__ == "__main__":
    tyro.cli(main)
