"""The best forms of a screen, timed again with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agents.base import Search
from agents.regional.screen import Form, Timer, time_cut

FINALISTS = 4
"""Forms of a site that are timed again with care."""


def finals(search: Search, timer: Timer, forms: list[Form], until: Callable[[], bool]) -> list[Form]:
    """The best forms timed again with care, since the best of many owes part of its lead to luck: of those that are
    about the same nodes the best one of each first step, `FINALISTS` at most. Where several cannot be told apart, the
    one with the fewest steps leads."""
    again: list[Form] = []
    left = sorted(forms, key=lambda form: -form.saved)
    while left:
        rivals = [form for form in left if _alike(form.nodes, left[0].nodes)]
        left = [form for form in left if form not in rivals]
        firsts = {form.steps[0].class_key: form for form in reversed(rivals)}
        retimed = [
            _retimed(search, timer, form, until)
            for form in sorted(firsts.values(), key=lambda form: -form.saved)[:FINALISTS]
        ]
        top = max(form.saved - form.half for form in retimed)
        equal = [form for form in retimed if form.saved + form.half >= top]
        chosen = min(equal, key=lambda form: (len(form.steps), -form.saved))
        again += [chosen, *(form for form in rivals if not form.nodes & chosen.nodes)]
    return [form for form in again if form.saved > form.half]


def _alike(one: frozenset[int], other: frozenset[int]) -> bool:
    """Whether two forms are about the same nodes, more or less: one over a whole part of the model is no rival of one
    of its layers."""
    return 2 * len(one & other) >= max(len(one), len(other))


def _retimed(search: Search, timer: Timer, form: Form, until: Callable[[], bool]) -> Form:
    timed = None if until() else time_cut(search, timer, form.cut)
    if timed is None:
        return form
    return replace(form, saved=timed.seconds, half=(timed.ci95[1] - timed.ci95[0]) / 2)
