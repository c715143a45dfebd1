"""Every rule of the package against its certificate."""

import json
import random

import pytest

from graph_rewrite import Rule
from graph_rewrite.rules import RULE_SETS, registered_rules
from graph_rewrite.rules import certification as certificate
from graph_rewrite.rules.certification import Certificate, holds, load
from graph_rewrite.rules.substitutions.rule_files import shipped_rules
from graph_rewrite.soundness.verification.verifier import verify

RULES = (*registered_rules(), *(rule for name in RULE_SETS[1:] for rule in shipped_rules(name)))


class TestShipped:
    def test_index_and_files_agree(self) -> None:
        known = json.loads((certificate.FOLDER / "index.json").read_text())["rules"]
        origins = {rule.name: rule.origin for rule in RULES}
        assert set(known) == set(origins)
        for name, digest in known.items():
            held = load(name, origins[name])
            assert held is not None
            assert held.digest == digest
            assert held.seed == 0

    def test_no_certificate_is_left_over(self) -> None:
        for origin in ("hand", *RULE_SETS[1:]):
            assert certificate.certified(origin) == {rule.name for rule in RULES if rule.origin == origin}

    @pytest.mark.parametrize("rule", registered_rules(), ids=lambda rule: rule.name)
    def test_a_certificate_holds(self, rule: Rule) -> None:
        recheck(rule)

    @pytest.mark.parametrize("name", RULE_SETS[1:])
    def test_certificates_of_a_set_hold(self, name: str) -> None:
        rules = shipped_rules(name)
        assert all(holds(rule) for rule in rules)
        for rule in random.Random(0).sample(rules, min(40, len(rules))):
            recheck(rule)


def recheck(rule: Rule) -> None:
    """The digest, and one of the instances of the full verification."""
    assert holds(rule)
    held, found = load(rule.name, rule.origin), verify(rule, fast=False, limit=1)
    assert isinstance(found, Certificate), str(found)
    assert held is not None
    assert held.verdict == "tested" or found.verdict == "proved", found.reason
