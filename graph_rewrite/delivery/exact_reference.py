"""The original in double precision, for extreme inputs on which its own rounding errors are large.

A mean of 12,544 equal numbers in float32 is off by 1e-5 of itself, since every addition rounds to the same side, and a
deep network makes more of it. A rewrite that adds them in another order differs from the original there because it is
right.
"""

from __future__ import annotations

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.operators.standard_semantics import EvaluationError
from graph_rewrite.runtime.ort_worker.comparison import AFTER, BEFORE, INPUT, Finding
from graph_rewrite.runtime.ort_worker.values import Array, compare_values


def is_nearer(original: Graph, finding: Finding, tolerance: float) -> bool:
    """Tell whether the output of the optimised model lies within the tolerance of what the original computes in double
    precision, or nearer to it than the original's own. False where nothing was kept to tell it by, or where an operator
    has no reference semantics.

    Args:
        tolerance: largest difference, relative to the scale of the output.

    Raises:
        OutOfTime: the time limit is reached.
    """
    if not finding.kept:
        return False
    with np.load(finding.kept) as kept:
        feeds = {name.removeprefix(INPUT): _fed(kept[name]) for name in kept.files if name.startswith(INPUT)}
        before, after = kept[BEFORE], kept[AFTER]
    try:
        values = run_graph(original, feeds)
    except EvaluationError:
        return False
    names = [original.names[value] for value in original.outputs]
    exact = np.asarray(values[names.index(finding.output)])
    (own, odd), (other, wrong) = (
        compare_values(exact, side.astype(exact.dtype).reshape(exact.shape)) for side in (before, after)
    )
    return not odd and not wrong and other <= max(tolerance, own)


def _fed(array: Array) -> Array:
    """Return an input out of a file as a model is fed with it: texts are objects then."""
    return array.astype(object) if array.dtype.kind == "U" else array
