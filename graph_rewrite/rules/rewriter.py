"""The rewriter: the enumerator of candidates with all registered rules as its default."""

from __future__ import annotations

from collections.abc import Iterable

from graph_rewrite.rewriting.enumerator import Enumerator, Granularity
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.registry import all_rules


class Rewriter(Enumerator):
    """Enumerates the candidates of graphs.

    Args:
        rules: the rules, in the order in which candidates are listed; all registered ones by default.
        granularity: offer a rule per `site`, per `class` of sites (same rule, same local structure and shapes), or
            `both`.
        deployment: offer to refuse or to keep ONNX Runtime's optimisers.
        domains: domains of operators that a rewrite may bring in; any by default.
        faults: collects exceptions that rules raise; by default they go through, with a note that names the rule.

    Raises:
        UncertifiedRuleError: without `rules`, where a registered rule has no valid certificate.
    """

    def __init__(
        self,
        rules: Iterable[Rule] | None = None,
        granularity: Granularity = "both",
        deployment: bool = True,
        domains: frozenset[str] | None = None,
        faults: RuleFaults | None = None,
    ) -> None:
        super().__init__(all_rules() if rules is None else rules, granularity, deployment, domains, faults)
