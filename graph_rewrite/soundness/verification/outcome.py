"""The outcome of verifying one rule, compared with the certificate in the repository."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import certification as certificates
from graph_rewrite.rules.certification import Certificate


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of verifying one rule: `problem` is empty where its certificate holds."""

    rule: str
    origin: str
    certificate: Certificate | None
    problem: str
    registered: bool = True


def check(rule: Rule, *, fast: bool, seed: int = 0) -> RuleOutcome:
    """Verify a rule and compare the outcome with the certificate in the repository, as far as `fast` allows."""
    # Not at the top: it imports ONNX Runtime and z3, half a second that the other subcommands do not need.
    from graph_rewrite.soundness.verification.refutation import Refutation
    from graph_rewrite.soundness.verification.verifier import verify

    try:
        result = verify(rule, fast=fast, seed=seed)
    except Exception as error:
        # A faulty rule raises anything. It is refused with its traceback; the other rules are verified all the same.
        reason = f"verification failed: {type(error).__name__}: {error}"
        result = Refutation(rule.name, rule.equation, reason, evidence=traceback.format_exc().splitlines())
    origin = rule.origin
    if isinstance(result, Refutation):
        return RuleOutcome(rule.name, origin, None, str(result), is_registered(rule))
    if not is_registered(rule):
        return RuleOutcome(rule.name, origin, result, "", registered=False)
    return RuleOutcome(rule.name, origin, result, _deviation(certificates.load(rule.name, origin), result, fast))


def _deviation(held: Certificate | None, found: Certificate, fast: bool) -> str:
    """Return in what the certificate in the repository falls short of the one found; empty where it holds."""
    command = f"rewritegym rules verify --rule {found.rule} --write"
    if held is None:
        return f"{found.rule} has no certificate: {command}"
    if held.digest != found.digest:
        return f"{found.rule} has changed since it was certified: {command}"
    if fast:
        worse = held.verdict == "proved" and found.verdict != "proved"
        return f"{found.rule} is certified as proved, and now: {found.reason}" if worse else ""
    if held == found:
        return ""
    fields = [name for name, value in held.to_json().items() if found.to_json()[name] != value]
    return f"{found.rule}: the certificate differs in {', '.join(fields)}: {command}"


def is_registered(rule: Rule) -> bool:
    """Return whether the rule is one of the package, not one of the user's own."""
    return type(rule).__module__.startswith("graph_rewrite.")
