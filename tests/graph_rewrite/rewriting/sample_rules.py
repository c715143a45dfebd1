"""Rules of a few lines for tests of the rewriter, with the candidates and refusals that they have in a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite import Candidate, Graph, Refusal, Rewriter, Rule
from graph_rewrite.rewriting.patterns import Const, Values


class DropIdentity(Rule):
    """Identity(x) = x"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Identity(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return x


class DropNegOfNeg(Rule):
    """Neg(Neg(x)) = x"""

    shared_interior = True

    def source(self, op: Any, x: Any) -> Any:
        return op.Neg(op.Neg(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return x


class NegateTwice(Rule):
    """Abs(x) = Neg(Neg(Abs(x)))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Abs(x)

    def check(self, m: Any, x: Any) -> Refusal | None:
        busy = any(node.op == "Neg" for node in m.consumers(m.root()))
        return Refusal("it is negated already") if busy else None

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Neg(op.Neg(op.Abs(x)))


class MergeMatMuls(Rule):
    """MatMul(x, v), MatMul(x, w) = Split(MatMul(x, Concat(v, w)))"""

    symmetric = True

    def source(self, op: Any, x: Any, v: Const, w: Const) -> Any:
        return op.MatMul(x, v), op.MatMul(x, w)

    def target(self, op: Any, m: Any, x: Any, v: Any, w: Any) -> Any:
        both = op.MatMul(x, op.Concat(v, w, axis=-1))
        return op.Split(both, op.ints(v.shape[-1], w.shape[-1]), axis=-1, _outputs=2)


class MergeSums(Rule):
    """Add(x, Abs(y)), Add(x, Neg(y)) = Split(Add(x, Concat(Abs(y), Neg(y)))): roots that may depend on each other"""

    def source(self, op: Any, x: Any, a: Any, b: Any) -> Any:
        return op.Add(x, op.Abs(a)), op.Add(x, op.Neg(b))

    def target(self, op: Any, m: Any, x: Any, a: Any, b: Any) -> Any:
        joined = op.Concat(op.Add(x, op.Abs(a)), op.Add(x, op.Neg(b)), axis=0)
        return op.Split(joined, axis=0, num_outputs=2, _outputs=2)


class SumOnce(Rule):
    """Sum(x, ..., x) = Mul(x, n)"""

    def source(self, op: Any, parts: Values) -> Any:
        return op.Sum(parts)

    def check(self, m: Any, parts: Any) -> Refusal | None:
        return None if len({part.external for part in parts}) == 1 else Refusal("the terms differ")

    def target(self, op: Any, m: Any, parts: Any) -> Any:
        return op.Mul(parts[0], op.constant(np.float32(len(parts))))


class Wrong(Rule):
    """Abs(x) = ReduceSum(x): gives another shape"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Abs(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.ReduceSum(x)


class Nothing(Rule):
    """Exp(Neg(x)) = Exp(Neg(x)): nothing changes"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Exp(op.Neg(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Exp(op.Neg(x))


class Exchange(Rule):
    """f(g(h(x))) = g(f(h(x))): not an equality, but the same operators and the same inputs in another order"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Exp(op.Neg(op.Abs(x)))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Neg(op.Exp(op.Abs(x)))


class FirstOfTwo(Rule):
    """Where(true, x, y) = x: y is not needed any more"""

    def source(self, op: Any, c: Const, x: Any, y: Any) -> Any:
        return op.Where(c, x, y)

    def target(self, op: Any, m: Any, c: Any, x: Any, y: Any) -> Any:
        return x if c.numpy().all() else Refusal("the condition is not always true")


class CrossMerge(Rule):
    """Add(x, y), Mul(x, z) = the same through Concat and Split"""

    def source(self, op: Any, x: Any, y: Any, z: Any) -> Any:
        return op.Add(x, op.Abs(y)), op.Mul(x, op.Neg(z))

    def target(self, op: Any, m: Any, x: Any, y: Any, z: Any) -> Any:
        joined = op.Concat(op.Add(x, op.Abs(y)), op.Mul(x, op.Neg(z)), axis=0)
        return op.Split(joined, axis=0, num_outputs=2, _outputs=2)


def sites(graph: Graph, *rules: type[Rule]) -> list[Candidate]:
    return list(Rewriter([rule() for rule in rules], "site", deployment=False).candidates(graph))


def refusals(graph: Graph, rule: type[Rule]) -> list[str]:
    return [str(refusal) for refusal in Rewriter([rule()]).explain(graph)]
