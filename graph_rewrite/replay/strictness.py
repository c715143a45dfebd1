"""Recorded steps under `--strict`: those that keep every value, also the ones that networks do not compute with."""

from __future__ import annotations

from collections.abc import Mapping

from graph_rewrite.replay.recording import RecordedStep
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rewriting.session_choices import LOSSY_SETTINGS
from graph_rewrite.rules.strict import losses


def step_losses(step: RecordedStep, rules: Mapping[str, Rule]) -> str:
    """Return what a recorded step does not keep, in words; empty where it keeps every value.

    Args:
        rules: the known rules, by name. A step of another rule keeps nothing for sure.
    """
    if step.kind == "deployment":
        return next((words for name, words in LOSSY_SETTINGS.items() if f"{name}=" in step.rule), "")
    if step.rule not in rules:
        return "there is no such rule here, so that nothing tells what it keeps"
    return ", ".join(sorted(losses(rules[step.rule])))
