"""Rewrite rules, in packages by subject, with the registry that collects them and their certificates."""

from graph_rewrite.rules.certification import UncertifiedRuleError
from graph_rewrite.rules.registry import (
    FAMILIES,
    RULE_SETS,
    UnknownRuleError,
    all_rules,
    families,
    find_rule,
    registered_rules,
    rule_names,
    rule_set,
)
from graph_rewrite.rules.rewriter import Rewriter

__all__ = [
    "FAMILIES", "RULE_SETS", "Rewriter", "UncertifiedRuleError", "UnknownRuleError", "all_rules", "families",
    "find_rule", "registered_rules", "rule_names", "rule_set",
]  # fmt: skip
