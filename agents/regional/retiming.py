"""The best forms of a screen, timed again with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agents.core.base import Search
from agents.regional.screen import Form, Timer, time_cut

FINALISTS = 4
"""Forms of a site that are timed again with care."""
AGAIN_S = (4.0, 8.0)
"""Seconds for timing each of those that cannot be told apart once more, and again if they still cannot."""
MATTERS = 0.005
"""Share of the model's time that a wrong choice may cost before they are worth it: two forms of all the
feed-forward networks of a transformer differ by 3% of it, of which windows of 20 MB show half by chance."""
DOUBTED = 0.001
"""Share of the model's time that a form must promise to be timed that long where its interval holds 0: windows of 20 ms
are known to some percent of themselves, and what saves less than that would never be taken."""


def finals(search: Search, timer: Timer, forms: list[Form], until: Callable[[], bool]) -> list[Form]:
    """The best forms timed again with care, since the best of many owes part of its lead to luck: of those that are
    about the same nodes the best one of each first step, `FINALISTS` at most. Where several cannot be told apart and
    seem to save as much, the one with the fewest steps leads. With what is left of the time, those that may save
    nothing are timed longer."""
    again: list[Form] = []
    left = sorted(forms, key=lambda form: -form.lower_bound)
    while left:
        rivals = [form for form in left if _alike(form.nodes, left[0].nodes)]
        left = [form for form in left if form not in rivals]
        firsts = {form.steps[0].class_key: form for form in reversed(rivals)}
        retimed = [
            _retimed(search, timer, form, until)
            for form in sorted(firsts.values(), key=lambda form: -form.lower_bound)[:FINALISTS]
        ]
        for seconds in AGAIN_S:
            equal = _equal(retimed)
            if len(equal) == 1 or until() or max(form.half for form in equal) < MATTERS * _seconds(search):
                break
            retimed = [_retimed(search, timer, form, until, seconds) if form in equal else form for form in retimed]
        chosen = _chosen(search, _equal(retimed))
        again += [chosen, *(form for form in rivals if not form.nodes & chosen.nodes)]
    sure = [form for form in again if form.lower_bound > 0.0]
    doubtful = [form for form in again if form.lower_bound <= 0.0 and form.saved > DOUBTED * _seconds(search)]
    for form in sorted(doubtful, key=lambda form: -form.saved):
        timed = _retimed(search, timer, form, until, AGAIN_S[0])
        if timed.lower_bound > 0.0:
            sure.append(timed)
    return sure


def _equal(forms: list[Form]) -> list[Form]:
    """Those that may be the best one."""
    top = max(form.lower_bound for form in forms)
    return [form for form in forms if form.saved + form.half >= top]


def _chosen(search: Search, equal: list[Form]) -> Form:
    """Of forms that may all be the best one that with the fewest steps, unless another seems to save more by far."""
    if len(equal) > 1:
        least = max(form.saved for form in equal) - MATTERS * _seconds(search)
        equal = [form for form in equal if form.saved >= least]
    return min(equal, key=lambda form: (len(form.steps), -form.lower_bound))


def _seconds(search: Search) -> float:
    """What a run of the best graph takes."""
    return search.best.latency.ms / 1e3 if search.best is not None else 0.0


def _alike(one: frozenset[int], other: frozenset[int]) -> bool:
    """Whether two forms are about the same nodes, more or less: one over a whole part of the model is no rival of one
    of its layers."""
    return 2 * len(one & other) >= max(len(one), len(other))


def _retimed(search: Search, timer: Timer, form: Form, until: Callable[[], bool], seconds: float | None = None) -> Form:
    """The form with another timing in place of what is known: with the timer's own budget, or anew within `seconds`."""
    timed = None if until() else time_cut(search, timer, form.cut, seconds)
    if timed is None:
        return form
    return replace(form, saved=timed.seconds, half=(timed.ci95[1] - timed.ci95[0]) / 2)
