"""Products modulo 2^31 - 1 by BLAS, against Python's integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.soundness.domains import limbs
from graph_rewrite.soundness.domains.limbs import P, multiply


def exactly(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array(a.astype(object) @ b.astype(object) % P, dtype=np.int64)


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32))
def test_products_of_residues_are_exact(m: int, k: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, P, (2, m, k)), rng.integers(0, P, (2, k, n))
    np.testing.assert_array_equal(multiply(a, b), exactly(a, b))


def test_the_longest_sum_of_the_largest_residues_is_exact() -> None:
    a = np.full((1, limbs.LONGEST), P - 1, dtype=np.int64)
    assert multiply(a, a.T).tolist() == [[limbs.LONGEST * (P - 1) ** 2 % P]]


def test_longer_sums_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limbs, "LONGEST", 7)
    rng = np.random.default_rng(0)
    a, b = rng.integers(P - 5, P, (3, 20)), rng.integers(P - 5, P, (20, 2))
    np.testing.assert_array_equal(multiply(a, b), exactly(a, b))


def test_leading_axes_broadcast() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, P, (3, 1, 2, 5)), rng.integers(0, P, (4, 5, 2))
    np.testing.assert_array_equal(multiply(a, b), exactly(a, b))
