"""The registry: which rules there are, in which sets, and in which order they are listed."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from functools import cache

from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.certification import require
from graph_rewrite.rules.substitutions.rule_files import shipped_names, shipped_rules


class UnknownRuleError(UserError, KeyError):
    """There is no rule of a given name."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


FAMILIES = (
    # First, because a list of sites that is too long loses its end: one step here takes a whole subgraph.
    "layout.blocked_subgraphs",
    "algebra.elimination",
    "algebra.elimination_functions",
    "algebra.elimination_shape",
    "movement.transpose",
    "movement.reshape",
    "algebra.elementwise",
    "algebra.elementwise_concat",
    "movement.joins_and_cuts",
    "movement.rows",
    "matmul.algebra",
    "matmul.concat",
    "matmul.parallel",
    "matmul.scale",
    "matmul.gemm",
    "matmul.pointwise",
    "matmul.rows",
    "matmul.strassen",
    "matmul.embedding",
    "matmul.tiling",
    "convolution.absorption",
    "convolution.chain",
    "convolution.parallel",
    "convolution.groups",
    "convolution.winograd",
    "convolution.spatial3d",
    "convolution.dilation",
    "layout.channel_padding",
    "layout.channel_padding_concat",
    "layout.pool_padding",
    "convolution.pooling",
    "convolution.subsampling",
    "convolution.upsampling",
    "attention.core",
    "attention.forms",
    "attention.masks",
    "attention.projections",
    "fusion.runtime_forms",
    "fusion.skip_layer_normalization",
    "fusion.bias_gelu",
    "fusion.fused_conv",
    "fusion.fused_matmul",
    "fusion.normalizations",
    "fusion.activations",
    "layout.blocked_steps",
    "layout.wider_subgraphs",
    "layout.blocked_winograd",
    "layout.column_padding",
    "convolution.row_bands",
    "fusion.quantised",
)
"""Modules of rules, in the order in which candidates are listed."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every registered rule, in a fixed order: by family, then as its module lists them in `RULES`.

    Raises:
        UncertifiedRuleError: a rule has no certificate, or has changed since it was certified.
        ValueError: two rules have the same name.
    """
    rules = registered_rules()
    require(rules)
    return rules


@cache
def registered_rules() -> tuple[Rule, ...]:
    """The rules of `all_rules`, whether or not they have valid certificates: what `rules verify` looks at.

    Raises:
        ValueError: two rules have the same name.
    """
    found: list[Rule] = []
    for family in FAMILIES:
        module = importlib.import_module(f"graph_rewrite.rules.{family}")
        found.extend(rule() for rule in module.RULES)
    _require_distinct_names(found)
    return tuple(found)


RULE_SETS = ("default", "generated", "taso")
"""Names of rule sets: written by hand, generated, imported from TASO's file. `all` is all of them."""


@cache
def rule_set(names: str = "default") -> tuple[Rule, ...]:
    """The rules of one set or of several, separated by commas, in the order of `RULE_SETS`.

    A name may also be that of a single rule. With a minus before it, a set or a rule is left out:
    `default,-ConvBiasToAdd`.

    Raises:
        UncertifiedRuleError: a rule has no certificate, or has changed since it was certified.
        UserError: an unknown set or rule, or none is left.
        ValueError: two rules have the same name.
    """
    listed = [name.strip() for name in names.split(",")]
    left_out = {name[1:] for name in listed if name.startswith("-")}
    wanted = {name for name in listed if not name.startswith("-")}
    every = "all" in wanted
    single = (wanted | left_out) - {*RULE_SETS, "all"}
    pools = {name: _rules_of(name) for name in RULE_SETS if every or single or name in wanted}
    for name in sorted(single - {rule.name for rules in pools.values() for rule in rules}):
        known = [*RULE_SETS, "all", *(rule.name for rules in pools.values() for rule in rules)]
        close = ", ".join(difflib.get_close_matches(name, known, n=3)) or f"{', '.join(RULE_SETS)} and all"
        raise UserError(f"there is no rule set {name!r}, and no rule of that name; there are {close}")
    found = [
        rule
        for pool, rules in pools.items()
        for rule in rules
        if (every or wanted & {pool, rule.name}) and not left_out & {pool, rule.name}
    ]
    if not found:
        raise UserError(f"the rules {names!r} leave none: name a set ({', '.join(RULE_SETS)}, all) or rules")
    require(found)
    _require_distinct_names(found)
    return tuple(found)


@cache
def rule_names() -> tuple[str, ...]:
    """The names of all rules, in the order of `rule_set("all")`, without building those that are data.

    Raises:
        ValueError: two rules written by hand have the same name.
    """
    by_hand = (rule.name for rule in registered_rules())
    return (*by_hand, *(name for pool in RULE_SETS[1:] for name in shipped_names(pool)))


def _rules_of(pool: str) -> tuple[Rule, ...]:
    return registered_rules() if pool == "default" else shipped_rules(pool)


def _require_distinct_names(rules: Sequence[Rule]) -> None:
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            raise ValueError(f"two rules are called {rule.name}")
        seen.add(rule.name)


def families() -> dict[str, list[Rule]]:
    """Rules by family."""
    grouped: dict[str, list[Rule]] = {}
    for rule in all_rules():
        grouped.setdefault(rule.family, []).append(rule)
    return grouped


def find_rule(name: str) -> Rule:
    """The rule of this name, from any set.

    Raises:
        UnknownRuleError: no such rule; the message names close ones.
    """
    known = {rule.name: rule for rule in rule_set("all")}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise UnknownRuleError(f"there is no rule {name!r}{hint}")
    return known[name]
