"""What is proved does not depend on what was proved before."""

from __future__ import annotations

import z3

from graph_rewrite.rules import all_rules
from graph_rewrite.soundness.effort import Effort
from graph_rewrite.soundness.instances import instances
from graph_rewrite.soundness.symbolic import prove


def test_the_steps_of_a_proof_do_not_depend_on_the_proofs_before() -> None:
    rule = next(rule for rule in all_rules() if rule.name == "ComposeClips")
    (instance, other) = [found for found, _ in zip(instances(rule, full=False), range(2), strict=False)]

    def steps() -> tuple[str, int]:
        effort = Effort()
        decision = prove(instance.graph, instance.candidate.apply(), effort, frozenset())
        return decision.verdict, effort.steps

    first = steps()
    assert first[1] < Effort().steps, "z3 was asked"
    prove(other.graph, other.candidate.apply(), Effort(), frozenset())
    z3.Solver().check(*[z3.Real(f"x{i}") * z3.Real(f"y{i}") > i for i in range(50)])
    assert steps() == first
