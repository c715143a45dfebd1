"""Limits on an optimised model besides time: its size, its rounding error, operators outside the ONNX standard."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graph_rewrite.delivery.tolerance import default_tolerance, is_single_or_finer
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency import Deployment
from graph_rewrite.runtime import PROVIDERS

SIZE_GROWTH = 5.0
"""Weights of a result over those of the original. Winograd's F(4,4) turns a 3x3 kernel into 6x6 elements, 4 times as
many, and its transforms take some more; what grows further pays for a little speed with a lot of memory."""
SIZE_PRICE = 0.1
"""Share of the latency that weights as large as the original's must save, where a price is asked. Winograd's (47% for
124%) and Strassen's (10% for 50%) pay that, tables behind embeddings (4% for 270%) don't."""
ERROR_BUDGET = 1e-4
"""Largest difference of an output relative to its scale, in float32: what Winograd and Toom-Cook variants that are
worth having stay below by a factor of 3 or more on whole networks."""
FREE_BYTES = 1 << 20
"""Growth that is always allowed: constants of a small model may multiply without anybody noticing."""

_STANDARD = frozenset({"", "ai.onnx"})


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """The limits that every result keeps. A graph beyond one of them is never timed and never chosen.

    Raises:
        UserError: a limit that makes no sense.
    """

    size_growth: float = SIZE_GROWTH
    """Most bytes of weights, as a multiple of the original's."""
    error_budget: float | None = None
    """Largest difference of any output on several inputs, relative to its scale. By default 1e-4, or less where
    rounding explains less; graphs in float16 or coarser, or in TF32, may differ by what rounding explains there."""
    standard_ops_only: bool = False
    """No operators of domains that are neither ONNX's own nor in the original."""
    rtol: float | None = None
    """With `atol`, a further limit for every element of an output, as in `numpy.allclose`: it may differ by at most
    `atol + rtol * |original|`. Where one of the two is given alone, the other is 0."""
    atol: float | None = None

    size_price: float = 0.0
    """Share of the original's latency that weights must save which are as large as the original's: with 0.1, growth by
    1% must save 0.1%. 0 for no price."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.size_price < math.inf:
            raise UserError(f"the price of size must be a number of 0 or more, got {self.size_price}")
        if not (self.size_growth >= 1.0 and math.isfinite(self.size_growth)):
            raise UserError(f"the limit on size growth must be a number of 1.0 or more, got {self.size_growth}")
        if self.error_budget is not None and not 0.0 < self.error_budget < 1.0:
            raise UserError(f"the error budget must lie between 0 and 1, got {self.error_budget}")
        for name, limit in (("rtol", self.rtol), ("atol", self.atol)):
            if limit is not None and not (limit >= 0.0 and math.isfinite(limit)):
                raise UserError(f"{name} must be a number of 0 or more, got {limit}")

    def violation(self, original: Graph, graph: Graph) -> str:
        """Return the limit that a graph breaks, in words; empty where it breaks none that shows without running it."""
        if self.standard_ops_only and (foreign := self.foreign_domains(original, graph)):
            return f"it has operators of {', '.join(foreign)}, and only standard ones are allowed (--standard-ops-only)"
        before, after = weight_bytes(original), weight_bytes(graph)
        if after > self.most_bytes(before):
            grown = f"{before / 1e6:.1f} to {after / 1e6:.1f} MB"
            return f"its weights grow from {grown}, by more than {self.size_growth:g} times (--max-size-growth)"
        return ""

    def most_bytes(self, before: int) -> float:
        """Return the most bytes of weights that a result may have, where the original has `before`."""
        return max(before * self.size_growth, before + FREE_BYTES)

    def price(self, original: Graph, graph: Graph) -> float:
        """Return the share of the original's latency that a graph must save for the weights that it adds."""
        if not self.size_price:
            return 0.0
        before, after = weight_bytes(original), weight_bytes(graph)
        return 0.0 if after <= before + FREE_BYTES else self.price_of(before, after - before)

    def price_of(self, before: int, growth: int) -> float:
        """Return the share of the original's latency that `growth` bytes of weights must save, where the original has
        `before`; 0 where the limit on size allows no growth that anybody would notice."""
        if growth <= 0 or before * (self.size_growth - 1.0) <= FREE_BYTES:
            return 0.0
        return self.size_price * growth / before

    def allowed_domains(self, original: Graph, provider: str = "cpu") -> frozenset[str] | None:
        """Return the domains of operators that rewrites may bring in; None for any.

        The blocked layout is that of ONNX Runtime's CPU provider, and another runtime has operators of its own.
        """
        own = {node.domain for node in original.nodes.values()}
        if self.standard_ops_only:
            return _STANDARD | own
        known = PROVIDERS[provider].domains
        return None if known is None else _STANDARD | known | own

    def foreign_domains(self, original: Graph, graph: Graph) -> list[str]:
        """Return the domains of operators in `graph` that neither ONNX nor the original has."""
        known = _STANDARD | {node.domain for node in original.nodes.values()}
        return sorted({node.domain for node in graph.nodes.values()} - known)

    def tolerance(self, original: Graph, deployment: Deployment) -> float:
        """Return the largest allowed difference of an output, relative to its scale."""
        if self.error_budget is not None:
            return self.error_budget
        usual = default_tolerance(original, deployment)
        return min(usual, ERROR_BUDGET) if is_single_or_finer(original, deployment) else usual


def priced(speedup: float, price: float) -> float:
    """Return a speed-up with a price, a share of the original's latency, put on the latency."""
    return speedup if price == 0.0 or speedup <= 0.0 else 1.0 / (1.0 / speedup + price)
