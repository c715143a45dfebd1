"""Persisted means: a chain is expected to save what the same rules saved on alike shapes elsewhere.

This is the simplest model of effects and the baseline of any other. Means stand under keys from special to general: the
chain on a class of shapes, the chain, the families of its last two rules, its last rule. Each is drawn towards the next
more general one as if that were `prior` labels (shrinkage: Efron and Morris 1975, Journal of the American Statistical
Association 70, 311-319), so that a single noisy label does not decide.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from graph_rewrite.errors import UserError
from graph_rewrite.experience.records import Label

PRIOR = 2.0
"""Labels that the more general mean counts as."""
LEAST_SHARE = -2.0
"""Share of a window's time below which a loss counts as this: what loses more is never taken, and would decide every
mean."""
_HEAVY = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Attention")
_FORMAT, _VERSION = "rewritegym.means", 1
ClassedNode = tuple[str, Mapping[str, Any], Sequence[int]]
"""An operator, its attributes, and the sizes of its first result."""


def share(label: Label) -> float:
    """Return the share of its window's time that a chain saves, large losses cut off."""
    return max(label.share_of_window, LEAST_SHARE)


def shape_class(label: Label) -> str:
    """Return a text that is equal for windows on which a rewrite works alike: the operators that its first step
    matches, with kernel, stride and dilation, and the powers of two nearest to the channels of a group and to the sizes
    of their results."""
    nodes = label.window["nodes"]
    matched = sorted({int(name[1:].partition(".")[0]) for name in _matched(label) if name.startswith("n")})
    found = (nodes[number] for number in matched if number < len(nodes))
    return class_of_nodes((node["op"], node.get("attrs", {}), (node["out"][0] or [0])[1:]) for node in found)


def class_of_nodes(nodes: Iterable[ClassedNode]) -> str:
    """Return the text of `shape_class` for the nodes that a first step matches, in topological order."""
    found = list(nodes)
    heavy = [node for node in found if node[0] in _HEAVY] or found
    return ";".join(_node_class(*node) for node in heavy)


def _matched(label: Label) -> Sequence[str]:
    at = label.steps[0]["at"]
    return at[0]["nodes"] if at else ()


def _node_class(op: str, attrs: Mapping[str, Any], shape: Sequence[int]) -> str:
    texts = [
        op,
        *(f"{name}={list(attrs[name])}" for name in ("kernel_shape", "strides", "dilations") if name in attrs),
    ]
    groups = attrs.get("group", 1)
    if groups != 1:
        each = shape[1] // groups if len(shape) > 1 else 0  # of the results' channels, which follow the batch
        texts.append("depthwise" if each == 1 else f"groups of {_power(each)}")
    return " ".join([*texts, *(str(_power(size)) for size in shape)])


def _power(size: int) -> int:
    """Return the exponent of the power of two nearest to a size; -1 where it is not known."""
    return round(math.log2(size)) if size > 0 else -1


def keys(label: Label) -> list[str]:
    """Return the keys of a label, from special to general; the last is that of all labels."""
    return chain_keys(label.rules, [step["family"] for step in label.steps], shape_class(label))


def chain_keys(rules: Sequence[str], families: Sequence[str], shapes: str) -> list[str]:
    """Return the keys of a chain, from special to general.

    Args:
        rules: of its steps.
        families: of these rules.
        shapes: the class of shapes that it begins on.
    """
    chain = " > ".join(rules)
    return [f"{chain} | {shapes}", chain, " > ".join(["...", *families[-2:]]), f"... > {rules[-1]}", ""]


@dataclass(slots=True)
class _Sum:
    """Number, sum and sum of squares of shares, by their weights."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0


@dataclass(slots=True)
class MeanEffects:
    """Means of the shares that chains save, under the keys of labels.

    Args:
        prior: labels that the more general mean counts as.
    """

    prior: float = PRIOR
    _sums: dict[str, _Sum] = field(default_factory=dict)

    def learn(self, labels: Iterable[Label]) -> Self:
        """Add labels that could be run; return the same object."""
        for label in labels:
            if label.ok:
                self.add(keys(label), share(label))
        return self

    def add(self, names: Iterable[str], value: float, weight: float = 1.0) -> None:
        """Add a value under some keys; it counts as so many labels."""
        for name in names:
            found = self._sums.setdefault(name, _Sum())
            found.count += weight
            found.total += weight * value
            found.squares += weight * value**2

    def weight(self, names: Iterable[str]) -> float:
        """Return the labels that are known under any of some keys, at most."""
        return max((self._sums[name].count for name in names if name in self._sums), default=0.0)

    def predict(self, label: Label) -> tuple[float, float]:
        """Return the share of its window's time that a chain is expected to save, and the standard deviation of what
        it may save. Only the window and the chain are read, not what was measured."""
        return self.expect(keys(label))

    def expect(
        self, names: Sequence[str], start: tuple[float, float] = (0.0, 1.0), prior: float | None = None
    ) -> tuple[float, float]:
        """Return what is expected under some keys, from special to general, and the standard deviation of that.

        Args:
            start: what is expected before anything is known under these keys: mean and standard deviation.
            prior: labels that this counts as, and each mean in the next more special one; by default `self.prior`.
        """
        mean, variance = start[0], start[1] ** 2
        counted = self.prior if prior is None else prior
        for name in reversed(names):
            found = self._sums.get(name)
            if found is None:
                continue
            weight = found.count + counted
            before, mean = mean, (found.total + counted * mean) / weight
            around = found.squares - 2.0 * mean * found.total + found.count * mean**2
            variance = (max(around, 0.0) + counted * (variance + (before - mean) ** 2)) / weight
        return mean, math.sqrt(variance)

    def to_json(self) -> dict[str, Any]:
        """Plain values, the same for the same labels in the same order."""
        sums = {name: [one.count, one.total, one.squares] for name, one in sorted(self._sums.items())}
        return {"format": _FORMAT, "version": _VERSION, "prior": self.prior, "sums": sums}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the means of a JSON text.

        Raises:
            UserError: it holds no means, or those of a later version.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise UserError(f"this holds no means of effects: {error!r}") from error
        return cls.from_values(values)

    @classmethod
    def from_values(cls, values: Any) -> Self:
        """Inverse of `to_json`.

        Raises:
            UserError: these are no means, or those of a later version.
        """
        try:
            if values["format"] != _FORMAT or values["version"] > _VERSION:
                raise UserError("these means are of another format: update RewriteGym, or learn them anew")
            sums = {
                name: _Sum(float(count), float(total), float(squares))
                for name, (count, total, squares) in values["sums"].items()
            }
            return cls(float(values["prior"]), sums)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"this holds no means of effects: {error!r}") from error
