"""Cases of the rules of the blocked layout: channels have to fill blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators.nchwc import DOMAIN, block_size
from graph_rewrite.soundness.cases.blocked_examples import EXAMPLES

_WRITTEN = 16
"""The block that the examples below are written for."""


TURN = "Transpose<perm=[0,1,3,2]>"


def image(text: str, filters: Mapping[str, Sequence[int]], seed: int = 0) -> Graph:
    """A graph out of ONNX's text syntax, where `B` stands for the block, `C` for two of them, `NCHWC` for the domain of
    the layout and `TURN` for a move that ONNX Runtime leaves it for; `filters` are the shapes of constants of normal
    numbers, with -n for n blocks. On a CPU with another block than 16 it stands where 16 is written, and twice the
    block where 32 is."""
    block, rng = block_size() or _WRITTEN, np.random.default_rng(seed)
    here = {_WRITTEN: block, 2 * _WRITTEN: 2 * block}
    text = re.sub(
        r"\b(16|32)\b", lambda found: str(here[int(found[0])]), text.replace("NCHWC", DOMAIN).replace("TURN", TURN)
    )
    text = re.sub(r"(?<=[\[,])B\b", str(block), re.sub(r"(?<=[\[,])C\b", str(2 * block), text))
    shapes = {name: [-n * block if n < 0 else here.get(n, n) for n in shape] for name, shape in filters.items()}
    constants: dict[str, Any] = {
        name: rng.standard_normal(shape) / sqrt(max(shape[1:], default=1)) for name, shape in shapes.items()
    }
    return model(text, **constants)


def examples_of(rule: str) -> Iterator[Graph]:
    """Yield the examples of a rule, by its name."""
    for seed, (text, filters) in enumerate(EXAMPLES[rule]):
        yield image(text, filters, seed)


def _written(rule: Any) -> Iterator[Graph]:
    return examples_of(rule.name)


CASES = dict.fromkeys(EXAMPLES, _written)
"""Functions that give the cases, by the rule's name."""
