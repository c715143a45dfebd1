"""Rewrites of PET (OSDI'21) that the mutation generator finds by itself: boxes, share wrong, repair and cost.

`python -m benchmarks.papers.rediscoveries [NAME ...]` searches programs, with the shapes of the paper where it has any,
until a mutant with the wanted operators comes up. As in any search, mutants are found at a small instance, judged and
repaired at a thin one, and proved at the real shapes. A cost is the multiplications of the repaired program, relative
to those of the original. Nothing is listed by hand but what to look for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from graph_rewrite.errors import UserError
from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.program import Step, Subprogram, TensorProgram, program, step
from graph_rewrite.mutate.repairs import Repair
from graph_rewrite.mutate.search import Limits, Mutant, mutants_of_subprogram, proved_repair
from graph_rewrite.mutate.thinning import MutantJudge
from graph_rewrite.mutate.value_types import types_of

Operators = list[tuple[str, tuple[Shape, ...]]]
"""Operators of a mutant other than layouts, with the shapes of what they read."""


@dataclass(frozen=True)
class Wanted:
    """A rewrite to look for: the original at a shape, and what tells the mutant."""

    original: TensorProgram
    shapes: tuple[Shape, ...]
    is_it: Callable[[Operators], bool]
    most_wrong: float
    """The largest part that may be wrong before the repair: of several mutants with these operators the first is taken
    that has less."""
    constants: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Rediscovery:
    """A mutant that was found, with its repair."""

    name: str
    boxes: int
    share_wrong: float
    repair: str
    cost: float
    error_bound: float

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Arguments:
    """Look for the rewrites of PET."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Rewrites by name; by default all but the one that takes minutes, stride-to-1-of-an-image."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON array of objects and nothing else."""


def conv(x: int, w: int, *, stride: int = 1, dilation: int = 1, pad: int = 1, rank: int = 2) -> Step:
    """Return a convolution of equal strides, dilations and pads along all axes."""
    return step("conv", x, w, strides=(stride,) * rank, dilations=(dilation,) * rank, pads=(pad,) * (2 * rank))


def _only(op: str, *shapes: Shape) -> Callable[[Operators], bool]:
    return lambda found: found == [(op, shapes)]


def _last(op: str, *shapes: Shape) -> Callable[[Operators], bool]:
    return lambda found: found[-1:] == [(op, shapes)]


_CONV = program(2, [conv(0, 1)])
_POOL = program(1, [step("pool", 0, kernel=(3, 3), strides=(1, 1), pads=(1,) * 4, counted=0)])
_PRODUCT = program(2, [step("matmul", 0, 1)])
_TWO = program(4, [conv(0, 2, pad=0), conv(1, 3, pad=0)], [4, 5])
_IMAGE, _FILTERS = (1, 64, 8, 8), (96, 64, 1, 1)
_WEIGHTS = frozenset({1})

WANTED: Mapping[str, Wanted] = {
    "batch-into-width": Wanted(
        _CONV, ((2, 16, 28, 28), (16, 16, 3, 3)), _only("conv", (1, 16, 28, 56), (16, 16, 3, 3)), 0.5, _WEIGHTS
    ),
    "batch-into-height": Wanted(
        _CONV, ((2, 16, 28, 28), (16, 16, 3, 3)), _only("conv", (1, 16, 56, 28), (16, 16, 3, 3)), 0.5, _WEIGHTS
    ),
    "dilated-to-dense": Wanted(
        program(2, [conv(0, 1, dilation=2, pad=2)]), ((1, 512, 14, 14), (256, 512, 3, 3)),
        _only("conv", (1, 512, 14, 14), (256, 512, 3, 3)), 0.3, _WEIGHTS,
    ),
    "38x38-to-16-of-10x10": Wanted(
        program(2, [conv(0, 1, pad=2)]), ((1, 48, 38, 38), (64, 48, 5, 5)),
        _only("conv", (16, 48, 10, 10), (64, 48, 5, 5)), 0.6, _WEIGHTS,
    ),
    "stride-to-1": Wanted(
        program(2, [conv(0, 1, stride=2, rank=1)]), ((1, 16, 64), (24, 16, 3)),
        _only("conv", (1, 32, 32), (24, 32, 2)), 0.0, _WEIGHTS,
    ),
    "stride-to-1-of-an-image": Wanted(
        program(2, [conv(0, 1, stride=2)]), ((1, 2, 12, 12), (3, 2, 3, 3)), _only("conv", (1, 8, 6, 6), (3, 8, 2, 2)),
        0.0, _WEIGHTS,
    ),
    "group-to-dense": Wanted(
        _CONV, ((1, 32, 14, 14), (48, 16, 3, 3)), _last("conv", (1, 32, 14, 14), (48, 32, 3, 3)), 0.0, _WEIGHTS
    ),
    "batched-to-plain-product": Wanted(
        _PRODUCT, ((2, 32, 64), (2, 64, 48)), _only("matmul", (1, 64, 64), (1, 64, 96)), 0.5
    ),
    "batched-to-plain-product-of-one-matrix": Wanted(
        _PRODUCT, ((2, 32, 64), (1, 64, 48)), _only("matmul", (1, 64, 64), (1, 64, 48)), 0.0
    ),
    "average-pool-to-convolution": Wanted(
        _POOL, ((1, 192, 35, 35),), _last("conv", (1, 192, 35, 35), (192, 1, 3, 3)), 0.4
    ),
    "figure-10a": Wanted(
        _TWO, (_IMAGE, _IMAGE, (48, 64, 1, 1), (32, 64, 1, 1)),
        lambda found: "fit" in dict(found) and found[-1:] == [("conv", ((1, 128, 8, 8), _FILTERS))], 0.0,
        frozenset({2, 3}),
    ),
    "figure-10b": Wanted(
        _TWO, (_IMAGE, _IMAGE, (64, 64, 1, 1), (32, 64, 1, 1)), _last("conv", (1, 192, 8, 8), _FILTERS), 0.0,
        frozenset({2, 3}),
    ),
}  # fmt: skip
"""What PET's figures and tables show, by name; the first two and the last two of them without shapes. The dilated
convolution becomes dense where the operator has none."""
_SLOW = frozenset({"stride-to-1-of-an-image"})


def rediscovered(name: str) -> Rediscovery:
    """Search for a rewrite, repair it, and return what was found.

    Raises:
        LookupError: the generator ends without it, or no repair is proved.
    """
    wanted = WANTED[name]
    judge = MutantJudge(Subprogram(wanted.original, wanted.shapes, constants=wanted.constants))
    mutant = _found(name, wanted, judge)
    repaired, kind, finding = mutant.program, "none", mutant.finding
    if not finding.exact:
        repair = proved_repair(judge, mutant)
        if not isinstance(repair, Repair):
            raise LookupError(f"{name}: {repair}")
        repaired, kind = repair.program, repair.kind
    again = prove(RandomTrials(wanted.original, wanted.shapes, seed=9), repaired)
    if again is None or not again.exact:
        raise LookupError(f"{name}: the repaired program is not equal everywhere")
    cost = work_of(repaired, wanted.shapes) / work_of(wanted.original, wanted.shapes)
    return Rediscovery(name, sum(map(len, finding.wrong)), finding.share_wrong, kind, cost, again.error)


def _found(name: str, wanted: Wanted, judge: MutantJudge) -> Mutant:
    def is_it(made: TensorProgram) -> bool:
        return wanted.is_it(_operators(made, wanted.shapes))

    for mutant in mutants_of_subprogram(judge.real, Limits(), judge=judge, is_hopeful=is_it):
        if mutant.finding.share_wrong <= wanted.most_wrong:
            return mutant
    raise LookupError(f"{name}: the generator does not find it")


def _operators(made: TensorProgram, shapes: Sequence[Shape]) -> Operators:
    types = types_of(made, shapes)
    computing = [each for each in made.steps if each.op != "layout"]
    return [(_name(each), tuple(types[value].shape for value in each.inputs)) for each in computing]


def _name(each: Step) -> str:
    return "dilated conv" if each.op == "conv" and max(each.param("dilations")) > 1 else each.op


def rows(found: Sequence[Rediscovery]) -> Iterator[str]:
    """Yield a header and a line per rediscovery."""
    yield f"{'rewrite':40s}{'boxes':>6s}{'wrong':>8s}  {'repair':10s}{'cost':>6s}{'error':>9s}"
    for each in found:
        share, bound = f"{each.share_wrong:.1%}", f"{each.error_bound:.0e}"
        yield f"{each.name:40s}{each.boxes:6d}{share:>8s}  {each.repair:10s}{each.cost:6.2f}{bound:>9s}"


def main(arguments: Arguments) -> None:
    """Search for the rewrites and print the table."""
    unknown = sorted(set(arguments.names) - set(WANTED))
    if unknown:
        raise UserError(f"there is no rewrite {unknown[0]!r}; known are {', '.join(WANTED)}")
    found = [rediscovered(name) for name in arguments.names or [name for name in WANTED if name not in _SLOW]]
    print(json.dumps([each.to_json() for each in found], indent=1) if arguments.json else "\n".join(rows(found)))


if __name__ == "__main__":
    main(tyro.cli(Arguments))
