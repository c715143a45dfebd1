"""Wrong rules are refused, each with a counterexample that a person can follow."""

import pytest

from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.soundness.floating.comparison import compare
from graph_rewrite.soundness.floating.inputs import KINDS
from graph_rewrite.soundness.instances.enumeration import instances
from graph_rewrite.soundness.verification.refutation import Refutation
from graph_rewrite.soundness.verification.verifier import verify
from tests.graph_rewrite.soundness.verification.planted import PLANTED


def test_there_are_twenty() -> None:
    assert len({kind.__name__ for kind in PLANTED}) == 20


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_a_wrong_rule_is_refused_with_a_counterexample(kind: type[Rule]) -> None:
    result = verify(kind(), fast=False)
    assert isinstance(result, Refutation)
    assert result.instance, result.reason
    text = str(result)
    print(text)
    assert text.startswith(f"{kind.__name__}: refuted by ")
    for part in (result.equation, result.instance, *result.source, *result.target):
        assert part in text
    # Values of inputs and of both outputs.
    assert any(" = " in line for line in result.evidence)
    assert " before" in text
    assert " after" in text or "\n  after" in text


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_a_wrong_rule_is_refused_by_floating_point_alone(kind: type[Rule]) -> None:
    """Two methods that know nothing of each other."""
    for number, instance in enumerate(instances(kind(), full=True)):
        assert number < 400, "not found"
        result = compare(instance.graph, instance.candidate.apply())
        if not result.ok:
            found = result.counterexample
            assert found is not None
            assert found.kind in {kind.name for kind in KINDS}
            break
    else:
        pytest.fail("not found")
