"""Forms in plain ONNX that ONNX Runtime's own passes leave alone, for fusions that are slower than what they replace.

Each keeps its form in the optimised graph of ONNX Runtime 1.31 at ORT_ENABLE_ALL; the tests check it. The rule
`SumAsAdds` of the element-wise family leads back.
"""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.operands import ordered


class _RuntimeForm(Rule):
    family = "runtime forms"


class ResidualAsSum(_RuntimeForm):
    """x + y = Sum(x, y), before a LayerNormalization: SkipLayerNormFusion looks for an Add"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        return op.Add(x, y)

    def setting(self, op: PatternBuilder, x: Any, y: Any, gamma: Any, beta: Maybe) -> Any:
        return op.LayerNormalization(op.Add(x, y), gamma, beta)

    def check(self, m: Match, x: Ref, y: Ref) -> Refusal | None:
        total = m.root()
        if not any(n.op == "LayerNormalization" and n.inputs[0] == total.external for n in m.consumers(total)):
            return Refusal("no LayerNormalization follows")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        return op.Sum(x, y) if ordered(x, y) else op.Sum(y, x)


class BiasAsSum(_RuntimeForm):
    """MatMul(x, w) + b = Sum(MatMul(x, w), b), w and b constant: MatMulAddFusion and BiasGeluFusion look for an Add"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Const) -> Any:
        return op.Add(op.MatMul(x, w, _label="product"), b)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref) -> Refusal | None:
        fits = w.rank == 2 and b.shape == w.shape[-1:]
        return None if fits else Refusal("what is added is not one number per column of a matrix")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref) -> Any:
        return op.Sum(m.value("product"), b)


RULES = (ResidualAsSum, BiasAsSum)
