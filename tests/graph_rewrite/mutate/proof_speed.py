"""The work of a proof: products over the field per multiplication of the programs, and seconds per 10^9 of these.

python -m tests.graph_rewrite.mutate.proof_speed --seconds 3
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import tyro

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.soundness.domains import limbs
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV

SHAPES: tuple[Shape, ...] = ((4, 64, 56, 56), (64, 64, 3, 3))


@contextmanager
def counted_products() -> Iterator[list[int]]:
    """Multiplications of all products of matrices in float64, one entry for each product."""
    found: list[int] = []
    whole = np.matmul

    class Counting:
        """NumPy, with a product that is counted."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        @staticmethod
        def matmul(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            made: np.ndarray[Any, Any] = whole(a, b)
            found.append(prod(made.shape) * a.shape[-1])
            return made

    before, limbs.np = limbs.np, Counting()  # type: ignore[assignment]
    try:
        yield found
    finally:
        limbs.np = before


def work(mutant: TensorProgram, shapes: tuple[Shape, ...]) -> int:
    """Multiplications of both programs."""
    return work_of(CONV, shapes) + work_of(mutant, shapes)


def main(seconds: float = 3.0) -> None:
    """Prove a mutant of a large convolution, and end with status 1 where that takes more than so many seconds of the
    processor per 10^9 multiplications and core."""
    began, cpu = time.perf_counter(), time.process_time()
    prove(RandomTrials(CONV, SHAPES), BATCH_TO_WIDTH)
    elapsed, used = time.perf_counter() - began, time.process_time() - cpu
    found = elapsed / (work(BATCH_TO_WIDTH, SHAPES) / 1e9)
    print(f"{found:.2f} s per 10^9 multiplications ({used / elapsed:.1f} cores)")
    raise SystemExit(1 if found > seconds else 0)


if __name__ == "__main__":
    tyro.cli(main)
