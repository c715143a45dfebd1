"""The search for steps that were recorded by keys alone, as results were before they had recordings: by the key, by the
description, and by what a run of steps rewrites together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from graph_rewrite.replay.recorder import by_rule, find_by_key
from graph_rewrite.replay.recording import RecordedStep
from graph_rewrite.replay.steps import TracedGraph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site


def find_step(traced: TracedGraph, step: RecordedStep) -> Candidate | None:
    """Return the candidate of a step: that with its key, or the one that reads most like it, but for the numbers of
    nodes without a name."""
    candidate = find_by_key(traced, step.rule, step.key)
    if candidate is not None:
        return candidate
    wanted = _readable(step.description)
    fitting = by_rule(traced, step.rule)
    for same in (_readable, place):
        for candidate in fitting:
            if candidate.count == step.sites and same(candidate.description) == same(wanted):
                return candidate
    return None


def find_run(traced: TracedGraph, steps: Sequence[RecordedStep]) -> list[Candidate]:
    """Return the candidates of the first few steps where classes of sites are cut otherwise now: steps of one rule that
    rewrote as many sites together as the classes have that hold the named sites now. Empty where there are none."""
    rule = steps[0].rule
    run = list(itertools.takewhile(lambda step: step.rule == rule and not step.at, steps))
    classes = [candidate for candidate in by_rule(traced, rule) if candidate.kind == "class"]
    found: list[Candidate] = []
    for length, step in enumerate(run, start=1):
        named = place(step.description)
        holding = [c for c in classes if any(place(site.description) == named for site in c.sites)]
        if len(holding) != 1 or holding[0] in found:
            return []
        found.append(holding[0])
        if sum(one.count for one in found) == sum(one.sites for one in run[:length]):
            return found
    return []


def find_rest(traced: TracedGraph, steps: Sequence[RecordedStep]) -> tuple[Site, ...]:
    """Return the sites of the first step where its class is cut otherwise now: the named one, and those of the same
    types that no later step names, where these are as many as were recorded. Empty where they are not."""
    first, later = steps[0], {place(step.description) for step in steps[1:]}
    sites = traced.sites(first.rule)
    named = next((site for site in sites if place(site.description) == place(first.description)), None)
    if named is None:
        return ()
    alike = [
        site
        for site in sites
        if site is named or (_types(site) == _types(named) and place(site.description) not in later)
    ]
    return tuple(alike) if len(alike) == first.sites else ()


def _types(site: Site) -> list[tuple[str, list[str]]]:
    """Return the matched operators of a site with the types of their operands and results."""
    return [
        (node.signature, [str(site.types[value]) for value in (*node.inputs, *node.outputs) if value is not None])
        for node in site.match.nodes
    ]


def place(description: str) -> str:
    """Return the part of a description that names the rule and the site."""
    return description.partition(":")[0]


def _readable(description: str) -> str:
    head = re.sub(r" \(all \d+ sites of this kind\)$", "", description)
    return re.sub(r" at #\d+:", " at #:", head)
