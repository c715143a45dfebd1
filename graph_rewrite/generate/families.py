"""The families of operators that the generator enumerates over, with the input tensors that make each of them valid.

As in TASO's generator, a few inputs of one shape stand for all: matrices and their products are square, images keep
their shape under a padded convolution, and an image of as many batches as channels is a weight as well. Whether an
equation holds for other shapes is for the later steps to find out. Each family has a second set of shapes, for the
tests that follow on equal fingerprints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from graph_rewrite.errors import UserError
from graph_rewrite.terms.semantics import TermType
from graph_rewrite.terms.substitution import SIGNATURES, Param

Params = tuple[tuple[str, Param], ...]


@dataclass(frozen=True, slots=True)
class OperatorInstance:
    """An operator with its parameters."""

    op: str
    params: Params = ()

    @property
    def inputs(self) -> int:
        """Number of operands."""
        return SIGNATURES[self.op].inputs

    @property
    def commutes(self) -> bool:
        """True where the operands may be swapped; enumeration then takes them in one order."""
        return self.op in ("ewadd", "ewmul")


@dataclass(frozen=True, slots=True)
class Family:
    """Operators and input tensors that are enumerated together."""

    name: str
    operators: tuple[OperatorInstance, ...]
    inputs: tuple[TermType, ...]
    test_inputs: tuple[TermType, ...]
    """The same inputs in other shapes."""
    constants: tuple[OperatorInstance, ...] = ()
    """Operands beside the inputs."""
    weights: tuple[int, ...] = ()
    """Inputs that are weights of convolutions; the others are images, where there are weights."""
    squares: bool = False
    """True where a convolution may take one image as its weight as well."""


def families(ops: Iterable[str]) -> list[Family]:
    """The families, with no other operators than these; those without any are left out.

    Raises:
        ValueError: a name that is no operator.
    """
    wanted = set(ops)
    unknown = sorted(wanted - SIGNATURES.keys())
    if unknown:
        raise UserError(f"there is no operator {unknown[0]!r}; known are {', '.join(SIGNATURES)}")
    found = []
    for family in (_matrices(), _batches(), _tensors(), _images(), *_convolutions()):
        operators = tuple(i for i in family.operators if i.op in wanted)
        constants = tuple(i for i in family.constants if i.op in wanted)
        if operators:
            found.append(replace(family, operators=operators, constants=constants))
    return found


def _make(op: str, **params: Param) -> OperatorInstance:
    return OperatorInstance(op, tuple(sorted(params.items())))


def _joins(rank: int, axes: Sequence[int]) -> list[OperatorInstance]:
    return [_make("concat", axis=a, rank=rank) for a in axes] + [_make("split", axis=a) for a in axes]


def _matrices() -> Family:
    operators = [
        *map(_make, ("ewadd", "ewmul", "smul", "relu")),
        _make("matmul", activation="none"),
        _make("transpose", perm=(1, 0)),
        *_joins(2, (0, 1)),
    ]
    scalars = (TermType((1,)), TermType((1,)))
    return Family(
        "matrices",
        tuple(operators),
        (*[TermType((2, 2))] * 4, *scalars),
        (*[TermType((3, 3))] * 4, *scalars),
        (_make("imatmul"), _make("iewmul")),
    )


def _batches() -> Family:
    operators = [
        *map(_make, ("ewadd", "smul", "relu")),
        _make("matmul", activation="none"),
        _make("transpose", perm=(0, 2, 1)),
        *_joins(3, (0, 1, 2)),
    ]
    return Family(
        "batches",
        tuple(operators),
        (*[TermType((2, 3, 3))] * 4, TermType((1,))),
        (*[TermType((3, 2, 2))] * 4, TermType((1,))),
        (_make("imatmul"),),
    )


def _tensors() -> Family:
    """Return the family of tensors: what matrices do not show of operators of any rank, with concat and split."""
    return Family(
        "tensors",
        (*map(_make, ("ewadd", "ewmul", "relu")), *_joins(4, (0, 1))),
        (TermType((2, 3, 2, 2)),) * 4,
        (TermType((3, 2, 3, 1)),) * 4,
    )


def _images() -> Family:
    """Return the family of operators that move and reduce the elements of images."""
    window: dict[str, Param] = {"kernel": (3, 3), "padding": "same", "stride": (1, 1)}
    operators = [
        *map(_make, ("ewadd", "ewmul", "smul", "relu")),
        *_joins(4, (0, 1)),
        _make("concat", axis=0, rank=2),
        _make("concat", axis=1, rank=2),
        *[_make("transpose", perm=perm) for perm in ((0, 2, 1, 3), (0, 1, 3, 2))],
        _make("reshape", shape=(0, -1)),
        _make("reshape", shape=(-1,)),
        _make("maxpool", **window),
        _make("avgpool", **window),
    ]
    return Family(
        "images",
        tuple(operators),
        (*[TermType((2, 3, 3, 3))] * 3, TermType((1,))),
        (*[TermType((3, 4, 4, 4))] * 3, TermType((1,))),
    )


def _convolutions() -> list[Family]:
    return [_convolution(*window) for window in (("same", 1), ("same", 2), ("valid", 1), ("valid", 2))]


def _convolution(padding: str, stride: int) -> Family:
    """Convolutions and pooling of one padding and stride.

    What does not depend on either is left to the first of these families: the others have fewer operators and inputs.
    """
    window: dict[str, Param] = {"padding": padding, "stride": (stride, stride)}
    every = (padding, stride) == ("same", 1)
    operators = [
        *map(_make, ("ewadd", "ewmul", "smul", "relu") if every else ("ewadd", "smul", "relu")),
        *[_make("conv", activation=activation, **window) for activation in ("none", "relu")],
        *_joins(4, (0, 1)),
        # With a larger stride or no padding, a larger kernel gives something else.
        *([_make("enlarge", kernel=(5, 5))] if every else []),
        _make("maxpool", kernel=(3, 3), **window),
        _make("avgpool", kernel=(3, 3), **window),
    ]
    # Images first, then weights; what is odd in the first shapes is even in the second.
    images = 3 if every else 2
    return Family(
        f"convolutions, {padding} padding, stride {stride}",
        tuple(operators),
        (*[TermType((2, 2, 5, 5))] * images, *[TermType((2, 2, 3, 3))] * 2, TermType((1,))),
        (*[TermType((4, 4, 6, 6))] * images, *[TermType((4, 4, 3, 3))] * 2, TermType((1,))),
        (_make("iconv", kernel=(3, 3)), _make("cpool", kernel=(3, 3))),
        tuple(range(images, images + 2)),
        squares=every,
    )
