"""Whole optimisations of random models give files that compute what the originals compute; and what is planted wrong
is found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import numpy as np
import pytest
from hypothesis import given

from graph_rewrite.delivery import equivalence
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import Rewriter
from graph_rewrite.task import problem
from tests.fuzzing.optimisations import whole
from tests.fuzzing.optimisations.__main__ import Tally, main, run_cases
from tests.fuzzing.optimisations.generator import RandomModel, models

MODELS = 100


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Tally:
    """A hundred random models, optimised and judged: 15 seconds, shared by the tests."""
    return run_cases(range(MODELS), tmp_path_factory.mktemp("fuzz"))


@pytest.mark.slow
def test_a_hundred_whole_optimisations_are_right(tally: Tally) -> None:
    assert [(verdict.seed, verdict.kind, verdict.fault) for verdict in tally.faults] == []


@pytest.mark.slow
def test_they_cover_operators_and_rules(tally: Tally) -> None:
    assert len(tally.verdicts) == MODELS
    assert len(tally.operators) >= 60
    assert len(tally.rules) >= 60
    assert tally.rewritten >= 0.6 * MODELS
    assert tally.telling >= 0.6 * MODELS
    assert any(verdict.symbolic and verdict.rules for verdict in tally.verdicts)


@given(models())
@hypothesis.settings(max_examples=10)
def test_models_that_hypothesis_draws_are_optimised_rightly(model: RandomModel) -> None:
    with tempfile.TemporaryDirectory() as folder:
        verdict = whole.judged(model, 0, Path(folder))
    assert (verdict.kind, verdict.fault) == ("", "")


class WrongRelu(Rule):
    """Relu(x) = Abs(x)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Abs(x)


class NearlyTanh(Rule):
    """Tanh(x) = Tanh(x) * 1.0001"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Mul(op.Tanh(x), op.constant(np.array(1.0001, np.float32)))


@pytest.fixture(params=[WrongRelu, NearlyTanh])
def wrong(request: pytest.FixtureRequest) -> Iterator[type[Rule]]:
    """A rule that is wrong, instead of all others."""
    rewriter = Rewriter([request.param()], deployment=False)
    with mock.patch.object(problem, "_shared_rewriter", return_value=rewriter):
        yield request.param


def _kinds(folder: Path) -> set[tuple[str, bool]]:
    """Kinds of faults over some models in float32, with whether the checks of the product caught them."""
    verdicts = run_cases(range(12), folder, "walk").verdicts
    return {(verdict.kind, verdict.fault.startswith("the checks caught it")) for verdict in verdicts}


def test_a_wrong_rule_that_the_checks_catch_is_reported(wrong: type[Rule], tmp_path: Path) -> None:
    assert ("mismatch", True) in _kinds(tmp_path)
    assert list(tmp_path.glob("model-*.onnx"))


def test_a_wrong_rule_that_the_checks_overlook_is_reported(wrong: type[Rule], tmp_path: Path) -> None:
    blind = mock.patch.object(equivalence, "judge_findings", return_value=Equivalence(True, 0.0, 1.0, "blind"))
    with blind:
        assert ("mismatch", False) in _kinds(tmp_path)


def test_a_crash_and_a_missing_file_are_reported(tmp_path: Path) -> None:
    with mock.patch.object(whole.rewritegym, "optimize", side_effect=KeyError("planted")):
        verdict = whole.check(0, tmp_path)
    assert verdict.kind == "crash"
    assert "planted" in verdict.fault
    assert (tmp_path / "model-0.onnx").exists()


def test_the_command_prints_what_it_covered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", "2", "--first", "3", "--folder", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "models by operator:" in out
    assert "models by rule:" in out
    assert "2 models: no fault; " in out
    assert not list(tmp_path.glob("*.onnx"))
