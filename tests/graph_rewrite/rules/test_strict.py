"""`--strict` leaves out every rule that is known not to keep special values."""

from pathlib import Path

import onnx
import pytest

from graph_rewrite.rewriting.rule import SIGNED_ZERO, Rule
from graph_rewrite.rules import certification, rule_set
from graph_rewrite.rules.strict import NO_KERNEL, losses, strict_rules
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import count_operators
from tests.graph_rewrite.sample_models import parsed


def test_no_rule_that_loses_something_is_left() -> None:
    rules = rule_set("all")
    kept = strict_rules(rules)
    assert 0 < len(kept) < len(rules)
    for rule in kept:
        certificate = certification.load(rule.name, rule.origin)
        assert certificate is not None
        assert not rule.lossy
        assert set(certificate.lost) <= {NO_KERNEL}
    left_out = {rule.name for rule in rules} - {rule.name for rule in kept}
    assert {rule.name for rule in rules if rule.lossy} <= left_out
    assert "DropIdentity" not in left_out


def test_a_rule_without_a_certificate_is_left_out() -> None:
    class Unknown(Rule):
        """Relu(x) = Relu(x)"""

    assert strict_rules([Unknown()]) == ()

    class Lossy(Unknown):
        """Relu(x) = Relu(x)"""

        lossy = frozenset({SIGNED_ZERO})

    assert SIGNED_ZERO in losses(Lossy())


@pytest.mark.parametrize("strict", [False, True])
def test_a_problem_offers_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    """x - 0 and x * 1 are kept by all; a product by the inverse is not what a quotient by zero or infinity is."""
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))
    text = "(float[2,3] x, float[2,3] z) => (float[2,3] y) { i = Identity(x)  r = Reciprocal(z)  y = Mul(i, r) }"
    onnx.save(parsed(text), tmp_path / "model.onnx")
    problem = open_problem(f"file:{tmp_path / 'model.onnx'}", provider="cpu", meter=count_operators, strict=strict)
    offered = {candidate.rule for candidate in problem.rewriter.candidates(problem.model.original)}
    assert "DropIdentity" in offered
    assert any(losses(rule) for rule in rule_set() if rule.name in offered) is not strict
