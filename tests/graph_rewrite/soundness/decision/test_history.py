"""Proofs do not depend on earlier proofs."""

from __future__ import annotations

from itertools import islice

import z3

from graph_rewrite.rules import all_rules
from graph_rewrite.soundness.decision.real_arithmetic import prove
from graph_rewrite.soundness.domains.effort import Effort
from graph_rewrite.soundness.instances.enumeration import Instance, instances


def steps(instance: Instance) -> int:
    """Return the effort that a proof takes."""
    effort = Effort()
    assert prove(instance.graph, instance.candidate.apply(), effort, frozenset()).verdict == "equal"
    return Effort().steps - effort.steps


def test_the_steps_of_a_proof_do_not_depend_on_the_proofs_before() -> None:
    rule = next(rule for rule in all_rules() if rule.name == "DropReluOfNonNegative")
    found = list(islice(instances(rule, full=False), 4))
    before = [steps(instance) for instance in found]
    assert min(before) > 0, "z3 was asked"
    z3.Solver().check(*[z3.Real(f"x{i}") * z3.Real(f"y{i}") > i for i in range(50)])
    assert [steps(instance) for instance in reversed(found)] == before[::-1]
