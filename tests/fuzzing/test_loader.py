"""Damaged models: loading, normalising and rewriting answer each with a result or with a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing.loader import case, check, main

CASES = 400
FAILED_BEFORE = (
    47, 75, 299, 337, 10373, 11540, 20082, 20605, 22727, 26784,  # each raised something else, hung or aborted once
)  # fmt: skip


def test_a_few_hundred_damaged_models(tmp_path: Path) -> None:
    outcomes = [check(case(seed), tmp_path) for seed in range(CASES)]
    assert {"accepted", "refused at load"} <= set(outcomes)


@pytest.mark.parametrize("seed", FAILED_BEFORE)
def test_models_that_failed_before(seed: int, tmp_path: Path) -> None:
    check(case(seed), tmp_path)


def test_the_command_counts_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cases", "3", "--first", "7"]) == 0
    assert capsys.readouterr().out.startswith("3 cases: ")
