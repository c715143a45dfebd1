"""Chains of operators on images, done band by band of rows.

The first layers of a network make images that are larger than any cache out of small ones, and a pool makes them small
again. Done for a band of rows at a time, all that comes between stays in the cache. Rows that two bands see are
computed twice. By itself this gains little on a CPU that prefetches well, and more where each band then becomes a
convolution with fewer products, whose transforms are bound by memory. Deep-learning compilers know it as layer fusion
by tiles (Alwani et al., Fused-Layer CNN Accelerators, MICRO'16).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat
from graph_rewrite.rules.helpers.elementwise import UNARY
from graph_rewrite.rules.helpers.geometry import Geometry, geometry, with_pads
from graph_rewrite.rules.helpers.slices import take

ENDS = frozenset({"AveragePool", "Conv", "MaxPool"})
"""Operators that a chain may end in."""
LONGEST = 12
"""Most operators of a chain."""
NARROW = 0.5
"""Size of the end relative to the widest value, at most: bands are put together there."""
ROWS = 2
"""The axis of rows."""
SMALL_BAND = 1000.0
"""Bytes of a band in proofs."""


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator of a chain; `geometry` is None for an element-wise one."""

    node: Node
    source: Ref
    result: Ref
    geometry: Geometry | None

    def needs(self, rows: range) -> tuple[range, int, int]:
        """Return the rows of the source that some rows of the result need, and the zeros before and after them."""
        if self.geometry is None:
            return rows, 0, 0
        own, height = self.geometry, self.source.shape[ROWS]
        first = rows.start * own.strides[0] - own.pads[0]
        last = (rows.stop - 1) * own.strides[0] - own.pads[0] + _reach(own)
        needed = range(max(first, 0), min(last, height))
        return needed, needed.start - first, last - needed.stop

    def attrs(self, before: int, after: int) -> dict[str, Any]:
        """Return the operator's attributes for a band with so many zeros before and after it."""
        if self.geometry is None:
            return dict(self.node.attrs)
        pads = self.geometry.pads
        return with_pads(self.node.attrs, (before, pads[1], after, pads[3]))


class ChainInBands(Rule):
    """f(x) = Concat over bands i of rows of f(rows of x that band i needs), where f is a chain of convolutions, pools
    and element-wise operators that is narrow at both ends and wide in between"""

    family = "tiling"
    least_bytes: int = 1 << 20
    """Bytes of the widest value below which a chain stays in the caches as it is."""
    band_bytes: float = 1.6e6
    """Bytes of a band where the chain is widest: what a core's own cache holds of it."""
    count: int | None = None
    """Number of bands; by default the sizes decide."""

    @property
    def at_any_size(self) -> ChainInBands:
        small = ChainInBands()
        small.least_bytes, small.band_bytes = 0, SMALL_BAND
        return small

    def as_in(self, replacement: Replacement) -> ChainInBands:
        (joined,) = replacement.outputs
        same = ChainInBands()
        same.least_bytes, same.count = 0, len(replacement.nodes[joined.node].inputs)
        return same

    def source(self, op: PatternBuilder, operands: Values) -> Any:
        return op.any_of(ENDS)(operands, _label="end")

    def check(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        chain = _chain(m)
        if isinstance(chain, Refusal):
            return chain
        widest = max(step.result.type.size for step in chain)
        if 4 * widest < self.least_bytes:
            return Refusal(f"the widest value has less than {self.least_bytes} bytes and stays in the caches")
        if max(chain[0].source.type.size, chain[-1].result.type.size) > NARROW * widest:
            return Refusal("the chain is not narrow at both ends")
        if self._bands(chain) > chain[-1].result.shape[ROWS]:
            return Refusal("the end has fewer rows than there are bands")
        return None

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...]) -> Any:
        chain = _chain(m)
        if isinstance(chain, Refusal):
            return chain
        rows, count = chain[-1].result.shape[ROWS], self._bands(chain)
        cuts = [rows * i // count for i in range(count + 1)]
        bands = [_band(op, m, chain, range(*ends)) for ends in pairwise(cuts)]
        return concat(op, bands, ROWS)

    def _bands(self, chain: list[_Step]) -> int:
        """Return the number of bands: as many as keep the widest one in the cache, or more where the rows then divide
        evenly."""
        if self.count is not None:
            return self.count
        rows, widest = chain[-1].result.shape[ROWS], max(4 * step.result.type.size for step in chain)
        wanted = max(2, round(widest / self.band_bytes))
        even = [count for count in range(wanted, 2 * wanted) if rows % count == 0]
        return even[0] if even else wanted


def _band(op: ReplacementBuilder, m: Match, chain: list[_Step], rows: range) -> Ref:
    """Return the chain's result for some rows."""
    borders = []
    for step in reversed(chain):
        rows, before, after = step.needs(rows)
        borders.append((before, after))
    value = take(op, chain[0].source, {ROWS: rows})
    for step, (before, after) in zip(chain, reversed(borders), strict=True):
        others = [None if other is None else m.ref(other) for other in step.node.inputs[1:]]
        value = op.apply(step.node.op, step.node.domain, step.attrs(before, after), (value, *others), 1)[0]
    return value


def _chain(m: Match) -> list[_Step] | Refusal:
    """Return the chain that ends at the root of a match: up to the narrowest value above its widest one."""
    step = _step(m, m.node("end"))
    if isinstance(step, Refusal):
        return step
    if _goes_on(m, step):
        return Refusal("the chain goes on, and is as narrow there")
    chain = [step]
    while len(chain) < LONGEST:
        source = chain[0].source
        maker = m.producer(source)
        if maker is None or m.is_output(source) or len(m.consumers(source)) != 1:
            break
        above = _step(m, maker)
        if isinstance(above, Refusal):
            break
        widest = max(one.result.type.size for one in chain)
        falls = source.type.size < widest
        if falls and above.source.type.size >= source.type.size:
            break  # above its widest value the chain becomes wider again
        chain.insert(0, above)
    return chain


def _goes_on(m: Match, step: _Step) -> bool:
    """Tell whether the only reader of a value is an operator of the chain that makes it no wider."""
    readers = m.consumers(step.result)
    if len(readers) != 1 or m.is_output(step.result):
        return False
    further = _step(m, readers[0])
    return not isinstance(further, Refusal) and further.result.type.size <= step.result.type.size


def _step(m: Match, node: Node) -> _Step | Refusal:
    """Return an operator as a step of a chain, which works on rows of an image."""
    if node.domain or node.opaque or len(node.outputs) != 1 or node.inputs[0] is None:
        return Refusal(f"{node.op} has no form for a band of rows")
    if any(value is not None and m.graph.types[value] is None for value in (*node.inputs, *node.outputs)):
        return Refusal(f"{node.op} has no static type")
    source, result = m.ref(node.inputs[0]), m.ref(node.outputs[0])
    if source.is_const or not (source.rank == result.rank == 4 and source.dtype == result.dtype == TensorProto.FLOAT):
        return Refusal("not an image of float32")
    if node.op in UNARY:
        return _Step(node, source, result, None)
    if node.op not in ENDS:
        return Refusal(f"{node.op} has no form for a band of rows")
    if node.op == "Conv":
        if node.inputs[1] is None or not m.ref(node.inputs[1]).is_const:
            return Refusal("the filters are not constant")
        kernel = m.ref(node.inputs[1]).shape[2:]
    else:
        kernel = node.attrs["kernel_shape"]
    own = geometry(node, source, kernel)
    refusal = _unsuited(node, own)
    return _Step(node, source, result, own) if refusal is None else refusal


def _reach(own: Geometry) -> int:
    """Return the rows from the first to the last that a window sees."""
    return (own.kernel[0] - 1) * own.dilations[0] + 1


def _unsuited(node: Node, own: Geometry) -> Refusal | None:
    if max(own.pads[0], own.pads[2]) >= _reach(own):
        return Refusal("a band may lie in the padding alone")
    if node.attrs.get("ceil_mode", 0) or node.attrs.get("storage_order", 0):
        return Refusal("the pool rounds up, or numbers elements by columns")
    if node.op == "AveragePool" and not own.is_unpadded:
        return Refusal("the pool divides by less at its padding")
    return None


RULES = (ChainInBands,)
