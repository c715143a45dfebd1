"""Registered rules: each has a name of its own, a family, an equation, and a pattern that can be built."""

import importlib
import json

import pytest

from graph_rewrite import Rule
from graph_rewrite.rewriting.digests import modules_digest
from graph_rewrite.rules import FAMILIES, all_rules, families, find_rule
from graph_rewrite.rules.certification import FOLDER

RULES = all_rules()


def test_names_are_unique_and_rules_are_found_by_them() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(find_rule(rule.name) is rule for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_has_a_family_an_equation_of_its_own_and_a_pattern(rule: Rule) -> None:
    assert rule.family
    assert "__doc__" in vars(type(rule)), "an inherited docstring is not this rule's equation"
    assert any(sign in rule.equation for sign in ("=", "->")), rule.equation
    assert rule.pattern.roots
    assert rule.digest


def test_no_two_rules_have_the_same_equation() -> None:
    equations = [rule.equation for rule in RULES]
    assert sorted(set(equations)) == sorted(equations)


def test_rules_come_in_the_order_of_the_families_modules() -> None:
    listed = [kind for family in FAMILIES for kind in importlib.import_module(f"graph_rewrite.rules.{family}").RULES]
    assert [type(rule) for rule in RULES] == listed
    assert sum(map(len, families().values())) == len(RULES)


def test_an_unknown_rule_is_refused_with_close_names() -> None:
    with pytest.raises(KeyError, match="did you mean DropIdentity"):
        find_rule("DropIdentitty")


def test_the_index_of_certificates_is_of_the_present_modules() -> None:
    """Else the registry computes the digest of every rule at each start."""
    index = json.loads((FOLDER / "index.json").read_text("utf-8"))
    current = index["code"] == modules_digest(index["modules"]) != ""
    assert current, "bring it up to date: python -m graph_rewrite rules verify --stale --write"
