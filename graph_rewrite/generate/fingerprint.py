"""Fingerprints of graphs, and the classes of graphs that share one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graph_rewrite.generate.enumerate import NO_TENSOR, WIDTH, Code, Enumeration, Expressions
from graph_rewrite.generate.families import Family

Bytes = npt.NDArray[np.uint8]

FINGERPRINT = 16
"""Bytes of a fingerprint: of the outputs' shapes and values over F_p, whatever their order."""
SWAPPED = 1
"""Flag of a graph whose second output comes first in the order of fingerprints."""
INPUT_ITSELF = 2
"""Flags from here on: graphs without operators, see `bare_inputs`."""


@dataclass(frozen=True, slots=True)
class Graphs:
    """Many graphs: fingerprints [n, 16], codes [n, 3 * max_ops] padded with `NO_TENSOR`, flags [n]."""

    fingerprints: Bytes
    codes: Bytes
    flags: Bytes

    def __len__(self) -> int:
        return len(self.flags)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Graphs:
        """These rows."""
        return Graphs(self.fingerprints[rows], self.codes[rows], self.flags[rows])


def bare_inputs(flag: int, count: int) -> tuple[int, ...]:
    """The inputs, of so many, that a graph without operators has as outputs; none for other graphs.

    One input comes as its number, two as `count * (first + 1)` + second.
    """
    number = flag - INPUT_ITSELF
    if number < 0:
        return ()
    return (number,) if number < count else (number // count - 1, number % count)


def fingerprint(digests: Sequence[bytes]) -> bytes:
    """Return the fingerprint of a graph with outputs of these digests."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.blake2b(b"".join(sorted(digests)), digest_size=FINGERPRINT).digest()


def enumerate_graphs(family: Family, first: int, max_ops: int, seed: int) -> Graphs:
    """All graphs whose first operator is this instance of the family; with the first one also the inputs themselves.

    Graphs whose two outputs are equal are left out: they compute something twice.
    """
    expressions = Expressions(family, family.inputs, seed, max_ops)
    prints, codes, flags = bytearray(), bytearray(), bytearray()
    padding = bytes([NO_TENSOR]) * (WIDTH * max_ops)
    if first == 0:
        for number in range(len(family.inputs) * (len(family.inputs) + 1)):
            bare = bare_inputs(INPUT_ITSELF + number, len(family.inputs))
            digests = [expressions.tensors[i].digest for i in bare]
            if len(bare) == 1 or digests[0] < digests[1]:
                prints += fingerprint(digests)
                codes += padding
                flags.append(INPUT_ITSELF + number)
    for code, outputs in Enumeration(expressions, first).graphs():
        digests = [expressions.tensors[i].digest for i in outputs]
        if len(outputs) == 2 and digests[0] == digests[1]:
            continue
        prints += fingerprint(digests)
        codes += bytes(code) + padding[len(code) :]
        flags.append(SWAPPED if len(outputs) == 2 and digests[0] > digests[1] else 0)
    return Graphs(
        np.frombuffer(bytes(prints), dtype=np.uint8).reshape(-1, FINGERPRINT),
        np.frombuffer(bytes(codes), dtype=np.uint8).reshape(-1, WIDTH * max_ops),
        np.frombuffer(bytes(flags), dtype=np.uint8),
    )


def concatenate(parts: Sequence[Graphs]) -> Graphs:
    """All graphs, sorted by fingerprint and, within, by size and code."""
    prints = np.concatenate([part.fingerprints for part in parts])
    codes = np.concatenate([part.codes for part in parts])
    flags = np.concatenate([part.flags for part in parts])
    halves = np.ascontiguousarray(prints).view(">u8")
    sizes = (codes[:, ::WIDTH] != NO_TENSOR).sum(axis=1)
    order = np.lexsort((flags, *codes.T[::-1], sizes, halves[:, 1], halves[:, 0]))
    return Graphs(prints, codes, flags).take(order)


def classes(graphs: Graphs) -> Iterator[tuple[int, int]]:
    """First and last + 1 of the rows that share a fingerprint, of sorted graphs; at least two rows each."""
    if not len(graphs):
        return
    changes = np.flatnonzero(np.any(graphs.fingerprints[1:] != graphs.fingerprints[:-1], axis=1)) + 1
    bounds = np.concatenate(([0], changes, [len(graphs)]))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if end - start > 1:
            yield start, end


def in_first_use_order(graphs: Graphs, family: Family) -> npt.NDArray[np.bool_]:
    """Return which graphs use interchangeable inputs in the order of their numbers.

    Any graph has such a renaming: the smallest of all its renamings, in the order by which operators are sorted.
    """
    kinds = [family.inputs.index(type_) for type_ in family.inputs]
    following = np.array(kinds)[None, :].repeat(len(graphs), axis=0)
    right = np.ones(len(graphs), dtype=bool)
    operands = [c for c in range(graphs.codes.shape[1]) if c % WIDTH]
    columns = [graphs.codes[:, c].astype(np.int64) for c in operands]
    bare = [bare_inputs(flag, len(kinds)) for flag in range(256)]
    for place in (1, 0):
        table = np.array([numbers[place] if len(numbers) > place else NO_TENSOR for numbers in bare])
        columns.insert(0, table[graphs.flags])
    rows = np.arange(len(graphs))
    for column in columns:
        used = column < len(kinds)
        number = np.where(used, column, 0)
        kind = np.array(kinds)[number]
        due = following[rows, kind]
        right &= ~used | (number <= due)
        following[rows, kind] = np.where(used & (number == due), due + 1, due)
    return right


def tested(family: Family, graphs: Graphs, seed: int) -> list[bytes]:
    """Per graph, its outputs' digests at the family's other shapes and another seed, in the order of fingerprints at
    the first; empty where the graph has no types there."""
    expressions = Expressions(family, family.test_inputs, seed, graphs.codes.shape[1] // WIDTH)
    return [
        _test(expressions, tuple(code), flag)
        for code, flag in zip(graphs.codes.tolist(), graphs.flags.tolist(), strict=True)
    ]


def _test(expressions: Expressions, code: Code, flag: int) -> bytes:
    if flag >= INPUT_ITSELF:
        bare = bare_inputs(flag, len(expressions.types))
        return b"".join(expressions.tensors[i].digest for i in bare)
    family = expressions.family
    tensors = list(range(expressions.leaves))
    unused: list[int] = []
    for start in range(0, len(code), WIDTH):
        if code[start] == NO_TENSOR:
            break
        count = family.operators[code[start]].inputs
        operands = tuple(tensors[i] for i in code[start + 1 : start + 1 + count])
        node = expressions.node(code[start], operands)
        if node is None:
            return b""
        unused = [i for i in unused if i not in operands] + list(node.outputs)
        tensors += node.outputs
    digests = [expressions.tensors[i].digest for i in unused]
    return b"".join(reversed(digests) if flag == SWAPPED else digests)
