"""Ranks that the operators of a pattern accept: proposals choose shapes that the operators further on can take."""

from __future__ import annotations

from collections.abc import Mapping

from graph_rewrite.rewriting.patterns import Pattern, PatternNode, PatternOutput, PatternValue, Var

_IMAGE, _MATRIX = frozenset({3, 4, 5}), frozenset({1, 2, 3, 4})
_RANKS: Mapping[tuple[str, int], frozenset[int]] = {
    **{(op, i): _IMAGE for op in ("Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalAveragePool") for i in (0, 1)},
    **{(op, i): _MATRIX for op in ("MatMul", "FusedMatMul") for i in (0, 1)},
    **{("Gemm", i): frozenset({2}) for i in (0, 1)},
    **{("Attention", i): frozenset({3, 4}) for i in (0, 1, 2)},
    **{("MultiHeadAttention", i): frozenset({3}) for i in (0, 1, 2)},
    **{("SkipLayerNormalization", i): frozenset({2, 3}) for i in (0, 1)},
    ("BatchNormalization", 0): frozenset({2, 3, 4, 5}),
}
_KEEPS_RANK = frozenset({
    "Add", "Sub", "Mul", "Div", "Transpose", "Concat", "Split", "Slice", "Pad", "Softmax", "LayerNormalization",
    "BatchNormalization", "Relu", "Gelu", "Dropout", "Identity",
})  # fmt: skip
_CHANGES_RANK = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Gather"})


class AcceptedRanks:
    """The ranks that each value of a pattern may have."""

    def __init__(self, pattern: Pattern) -> None:
        self._nodes = pattern.nodes
        self._wanted: dict[Var, frozenset[int] | None] = {}

    def of_variable(self, variable: Var | None) -> frozenset[int] | None:
        """Ranks of a variable that the operators reading it, and those after them, accept; None where any rank is."""
        if variable is None:
            return None
        if variable not in self._wanted:
            self._wanted[variable] = self._ranks(variable)
        return self._wanted[variable]

    def of_output(self, node: PatternNode) -> frozenset[int] | None:
        """Ranks that the readers of an operator's result accept; None where any rank is."""
        return self._ranks(PatternOutput(node, 0))

    def _ranks(self, value: PatternValue) -> frozenset[int] | None:
        found: frozenset[int] | None = None
        for node in self._nodes:
            for i, source in enumerate(node.inputs):
                if source != value:
                    continue
                wanted = self._ranks_at(node, i)
                if wanted is not None:
                    found = wanted if found is None else found & wanted or wanted
        return found

    def _ranks_at(self, node: PatternNode, i: int) -> frozenset[int] | None:
        (op, *others) = sorted(node.operators)
        wanted = None if others else _RANKS.get((op, i), _RANKS.get((op, -1) if i == 0 else (op, -2)))
        perm = node.attrs.get("perm")
        if op == "Transpose" and isinstance(perm, tuple):
            wanted = frozenset({len(perm)})
        if wanted is None and (i == 0 or node.commutative) and (others or op in _KEEPS_RANK):
            kept = not node.operators & _CHANGES_RANK
            return self._ranks(PatternOutput(node, 0)) if kept else None
        return wanted
