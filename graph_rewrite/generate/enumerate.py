"""Depth-first enumeration of graphs (TASO, SOSP'19, algorithm 1), without building one twice."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from graph_rewrite.generate.families import Family
from graph_rewrite.terms.semantics import IntArray, TermType, apply, infer, random_arrays
from graph_rewrite.terms.substitution import Term

MAX_OUTPUTS = 2
"""The most outputs of a graph: the tensors that no operator of it takes."""

Code = tuple[int, ...]
"""A graph as numbers, `WIDTH` per operator: instance, then tensors; inputs and constants come first, then outputs."""
WIDTH = 3
NO_TENSOR = 255


@dataclass(slots=True)
class EnumeratedTensor:
    """A value: of an input, of a constant or of an operator on others."""

    type: TermType
    value: IntArray
    digest: bytes
    """The digest of shape and value; constants of unknown size have one by name."""
    key: str
    """Names the expression."""
    operators: frozenset[str] = frozenset()
    """Keys of the operators that it is computed by."""
    is_weight: bool = False
    """True where it is a weight of convolutions, in a family that tells them from images."""
    known: frozenset[bytes] = frozenset()
    """Digests of what it was computed from, of its own and of all inputs."""


@dataclass(slots=True)
class EnumeratedNode:
    """An operator instance applied to tensors."""

    key: str
    """Names the expression; orders the operators of a graph."""
    operator: int
    operands: tuple[int, ...]
    outputs: tuple[int, ...]
    redundant: bool
    """An output has the value of an input or of what it was computed from: no graph goes on from it."""
    recomputes: bool
    """As above, and not of an input: what holds for an input in its place says it all."""


@dataclass(slots=True)
class Expressions:
    """All expressions over a family's inputs that were met, each evaluated once.

    Args:
        family: operators and inputs.
        types: types of the inputs; the family's own or those for tests.
        seed: draws the inputs' values and the uninterpreted functions.
        max_ops: of a graph, constants counted. Expressions of so many operators are operands of nothing: their values
            are not kept.
    """

    family: Family
    types: Sequence[TermType]
    seed: int
    max_ops: int
    tensors: list[EnumeratedTensor] = field(default_factory=list)
    leaves: int = 0
    """Number of inputs and constants; they are the first tensors."""
    _nodes: dict[tuple[int, ...], EnumeratedNode | None] = field(default_factory=dict)
    _inputs: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        arrays = random_arrays(dict(enumerate(self.types)), np.random.default_rng(self.seed))
        self.tensors = [
            EnumeratedTensor(t, arrays[i], _digest(t, arrays[i]), f"x{i}") for i, t in enumerate(self.types)
        ]
        for number in self.family.weights:
            self.tensors[number].is_weight = True
        for constant in self.family.constants:
            type_ = TermType((), constant=Term(constant.op, (), constant.params))
            self.tensors.append(EnumeratedTensor(type_, _NOTHING, constant.op.encode(), constant.op))
            self.tensors[-1].is_weight = bool(self.family.weights)
        self.leaves = len(self.tensors)
        self._inputs = frozenset(tensor.digest for tensor in self.tensors)
        for tensor in self.tensors:
            tensor.known = self._inputs

    def node(self, operator: int, operands: tuple[int, ...]) -> EnumeratedNode | None:
        """The operator on these tensors; None where it does not accept them."""
        place = (operator, *operands)
        if place not in self._nodes:
            self._nodes[place] = self._evaluate(operator, operands)
        return self._nodes[place]

    def key(self, operator: int, operands: tuple[int, ...]) -> str:
        """Names the operator on these tensors; an operator that comes later in the family has a larger key."""
        return f"{operator:02}({','.join(self.tensors[i].key for i in operands)})"

    def _evaluate(self, operator: int, operands: tuple[int, ...]) -> EnumeratedNode | None:
        instance = self.family.operators[operator]
        term = Term(instance.op, (), instance.params)
        types = [self.tensors[i].type for i in operands]
        outputs = infer(term, types)
        # Of what makes numbers of numbers only sum and product are enumerated.
        if outputs is None or (outputs[0].size == 1 and not instance.commutes):
            return None
        if self.family.weights and not self._in_role(instance.op, operands):
            return None
        sources = [self.tensors[i] for i in operands]
        values = apply(term, types, [source.value for source in sources], seed=self.seed)
        key = self.key(operator, operands)
        operators = frozenset((key,)).union(*(source.operators for source in sources))
        known = frozenset[bytes]().union(*(source.known for source in sources))
        digests = [_digest(type_, value) for type_, value in zip(outputs, values, strict=True)]
        numbers = tuple(range(len(self.tensors), len(self.tensors) + len(outputs)))
        if len(operators) >= self.max_ops:
            self.tensors += [
                EnumeratedTensor(t, _NOTHING, digest, "") for t, digest in zip(outputs, digests, strict=True)
            ]
        else:
            after = known.union(digests)
            for index, (type_, value, digest) in enumerate(zip(outputs, values, digests, strict=True)):
                is_weight = instance.op not in _OF_IMAGES and any(source.is_weight for source in sources)
                self.tensors.append(
                    EnumeratedTensor(type_, value, digest, f"{key}.{index}", operators, is_weight, after)
                )
        redundant = any(digest in known for digest in digests)
        recomputes = redundant and not any(digest in self._inputs for digest in digests)
        return EnumeratedNode(key, operator, operands, numbers, redundant, recomputes)

    def _in_role(self, op: str, operands: tuple[int, ...]) -> bool:
        """Return whether images and weights are where they belong, and are not mixed."""
        weights = [self.tensors[i].is_weight for i in operands]
        if op == "conv":
            return not weights[0] and (weights[1] or operands[0] == operands[1])
        if op in _OF_IMAGES:
            return not weights[0]
        sources = [self.tensors[i] for i in operands]
        tensors = {source.is_weight for source in sources if source.type.size > 1 or source.type.constant}
        return len(tensors) <= 1 and (op != "enlarge" or all(weights))


_OF_IMAGES = ("conv", "maxpool", "avgpool")
_NOTHING = np.zeros((), dtype=np.int64)


def _digest(type_: TermType, value: IntArray) -> bytes:
    text = repr(type_.shape).encode() + np.ascontiguousarray(value).tobytes()
    return hashlib.blake2b(text, digest_size=16).digest()


@dataclass(slots=True)
class Enumeration:
    """Depth-first search through the graphs of a family.

    A graph is built in one order of its operators only, the smallest by `EnumeratedNode.key` among those in which
    operands come first: an operator may not come after a larger one that it could stand before. Two restrictions
    leave out what says little: no operator takes the same operand twice (but a convolution, in some families), and a
    graph uses one constant, once, which counts as an operator.
    """

    expressions: Expressions
    first: int | None = None
    """Only graphs whose first operator is this instance; all by default."""

    def graphs(self) -> Iterator[tuple[Code, tuple[int, ...]]]:
        """Codes of all graphs with at most `MAX_OUTPUTS` outputs, and those outputs (tensors of `expressions`)."""
        yield from self._build([], list(range(self.expressions.leaves)), (), self.expressions.max_ops)

    def _build(
        self, nodes: list[EnumeratedNode], tensors: list[int], unused: tuple[int, ...], left: int
    ) -> Iterator[tuple[Code, tuple[int, ...]]]:
        constants = range(len(self.expressions.types), self.expressions.leaves)
        for node in self._next(nodes, tensors if left > 1 else [i for i in tensors if i not in constants]):
            outputs = tuple(i for i in unused if i not in node.operands) + node.outputs
            spent = any(operand in constants for operand in node.operands)
            after = left - 1 - spent
            # Each further operator takes two outputs away and adds one, at best.
            if len(outputs) - after > MAX_OUTPUTS:
                continue
            grown = [*nodes, node]
            if len(outputs) <= MAX_OUTPUTS and not node.recomputes and not (node.redundant and outputs != node.outputs):
                yield self._code(grown), outputs
            if after and not node.redundant:
                left_over = [i for i in tensors if i not in constants] if spent else tensors
                yield from self._build(grown, [*left_over, *node.outputs], outputs, after)

    def _next(self, nodes: list[EnumeratedNode], tensors: list[int]) -> Iterator[EnumeratedNode]:
        find = self.expressions.node
        for number, instance in enumerate(self.expressions.family.operators):
            if not nodes and self.first is not None and number != self.first:
                continue
            if instance.inputs == 1:
                choices: Iterator[tuple[int, ...]] = ((t,) for t in tensors)
            elif instance.commutes:
                choices = itertools.combinations(tensors, 2)
            elif instance.op == "conv" and self.expressions.family.squares:
                choices = itertools.product(tensors, repeat=2)
            else:
                choices = itertools.permutations(tensors, 2)
            for operands in choices:
                if not nodes or self._in_order(nodes, number, operands):
                    node = find(number, operands)
                    if node is not None:
                        yield node

    def _in_order(self, nodes: Sequence[EnumeratedNode], operator: int, operands: tuple[int, ...]) -> bool:
        """Return whether the operator is new, and none before it that it does not depend on is larger."""
        for before in reversed(nodes):
            if any(operand in before.outputs for operand in operands):
                return True
            if operator < before.operator:
                return False
            if operator == before.operator and self.expressions.key(operator, operands) <= before.key:
                return False
        return True

    def _code(self, nodes: Sequence[EnumeratedNode]) -> Code:
        place = {i: i for i in range(self.expressions.leaves)}
        code: list[int] = []
        for node in nodes:
            operands = [place[i] for i in node.operands]
            code += [node.operator, *operands, *[NO_TENSOR] * (WIDTH - 1 - len(operands))]
            for output in node.outputs:
                place[output] = len(place)
        return tuple(code)
