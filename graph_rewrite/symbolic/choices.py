"""Values for symbols: what to search at where the user does not say, and at which others to compare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum

from graph_rewrite.symbolic.inputs import Place, SymbolicInputs


class Role(Enum):
    """The usual meaning of a symbol, with the value that it is searched at and others for models that refuse it."""

    BATCH = "batch", (1, 2, 4, 8, 16)
    SEQUENCE = "length", (128, 64, 32, 16, 8, 4, 2, 1)
    IMAGE = "height or width", (224, 256, 299, 384, 512, 128, 64, 32)
    CHANNELS = "channels", (3, 1, 4)
    FRAMES = "frames", (8, 16, 32, 4)

    @property
    def label(self) -> str:
        return str(self.value[0])

    @property
    def defaults(self) -> tuple[int, ...]:
        return tuple(self.value[1])


_NAMES = (
    (re.compile(r"(^|[^a-z])(n|b|bs|bsz|batch|batchsize|num_samples)([^a-z]|$)|batch"), Role.BATCH),
    (re.compile(r"seq|len|token|time|word|past|context"), Role.SEQUENCE),
    (re.compile(r"(^|[^a-z])(h|w)([^a-z]|$)|height|width"), Role.IMAGE),
    (re.compile(r"channel"), Role.CHANNELS),
    (re.compile(r"frame|depth"), Role.FRAMES),
)


def role_of(symbol: str, place: Place) -> Role:
    """Return the role of a symbol, by its name or else by its place: the first axis of an input is the batch, the last
    two of four or five are height and width, the second of four channels, others lengths."""
    for pattern, role in _NAMES:
        if pattern.search(symbol.lower()) and symbol != f"{place.input}.{place.axis}":
            return role
    if place.axis == 0:
        return Role.BATCH
    if place.rank in (4, 5):
        return Role.CHANNELS if place.axis == 1 else Role.IMAGE if place.axis >= place.rank - 2 else Role.FRAMES
    return Role.SEQUENCE


def default_values(inputs: SymbolicInputs, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Return values of all symbols to try in turn, until the model accepts some: those that are given, and what is
    usual for the others."""
    roles = {symbol: role_of(symbol, place) for symbol, place in inputs.symbols.items()}
    tried: list[dict[str, int]] = []
    for attempt in range(max((len(role.defaults) for role in roles.values()), default=1)):
        usual = {s: r.defaults[min(attempt, len(r.defaults) - 1)] for s, r in roles.items() if r is not Role.BATCH}
        for batch in (1, 2) if attempt == 0 else (1,):
            values = {symbol: given.get(symbol, usual.get(symbol, batch)) for symbol in roles}
            if values not in tried:
                tried.append(values)
    return tried


def variations(role: Role, bound: int) -> tuple[list[int], list[int]]:
    """Return other values of a symbol: some to carry rewrites over to, and some that only the comparison sees. Both
    have odd ones, so that nothing rests on divisibility, smaller and larger ones."""
    if role in (Role.BATCH, Role.CHANNELS, Role.FRAMES):
        seen, unseen = [2, 3, 5, bound + 1], [4, 7, 1, 6, 8, 9, 2 * bound + 1, bound + 2, 10]
    elif role is Role.SEQUENCE:
        seen = [max(2, bound // 3) | 1, bound // 2 + 2, 5, bound + 7]
        unseen = [max(3, bound // 4), 2 * bound, 1, bound - 1, max(2, bound // 2), 3 * bound // 4 + 1, bound + 1, 9]
    else:
        seen = [bound + 32, max(32, bound - 64), bound + 1, bound + 64]
        unseen = [max(32, bound - 32), bound + 96, bound + 33, max(64, bound // 2), bound - 1, bound + 128]
    seen = [value for value in dict.fromkeys(seen) if value > 0 and value != bound]
    kept = [value for value in dict.fromkeys(unseen) if value > 0 and value != bound and value not in seen]
    return seen, kept


def joint(options: Mapping[str, list[int]], count: int) -> Iterator[dict[str, int]]:
    """Yield up to `count` bindings in which all symbols vary at once, each symbol at another pace."""
    found: list[dict[str, int]] = []
    for number in range(4 * count):
        values = {
            symbol: choices[(number + (1 + number // len(choices)) * place) % len(choices)]
            for place, (symbol, choices) in enumerate(options.items())
            if choices
        }
        if values and values not in found:
            found.append(values)
            yield values
        if len(found) == count:
            return
