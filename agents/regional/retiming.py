"""The best chains of a screen, timed again with care."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agents.core.base import Search
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.options import RegionalOptions

FIRST_LOOK_S = 1.0
"""Seconds for timing a doubtful chain, before it is timed longer if these leave open whether it saves."""


def retime(
    search: Search, timer: Timer, chains: list[RewriteChain], until: Callable[[], bool], options: RegionalOptions
) -> list[RewriteChain]:
    """Time the best chains again with care, since the best of many owes part of its lead to luck: of those about the
    same nodes the best one of each first step, `finalists` at most. Where several cannot be told apart and seem to save
    as much, the one with the fewest steps leads. With what is left of the time, those that may save nothing are timed
    longer, at first for a second, which tells most of them."""
    again: list[RewriteChain] = []
    left = sorted(chains, key=lambda chain: -chain.lower_bound)
    while left:
        rivals = [chain for chain in left if _are_rivals(chain.nodes, left[0].nodes)]
        left = [chain for chain in left if chain not in rivals]
        firsts = {chain.steps[0].class_key: chain for chain in reversed(rivals)}
        finalists = sorted(firsts.values(), key=lambda chain: -chain.lower_bound)[: options.finalists]
        retimed = [_timed_again(search, timer, chain, until, options) for chain in finalists]
        for seconds in options.again_s:
            equal = _equal(retimed)
            if len(equal) == 1 or until() or max(chain.half for chain in equal) < options.matters * _seconds(search):
                break
            retimed = [
                _timed_again(search, timer, chain, until, options, seconds) if chain in equal else chain
                for chain in retimed
            ]
        chosen = _chosen(search, _equal(retimed), options)
        others = [*retimed, *(chain for chain in rivals if chain not in finalists)]
        again += [chosen, *(chain for chain in others if not chain.nodes & chosen.nodes)]
    sure = [chain for chain in again if chain.lower_bound > 0.0]
    doubtful = [chain for chain in again if chain.lower_bound <= 0.0 and chain.net > options.doubted * _seconds(search)]
    for chain in sorted(doubtful if options.again_s else [], key=lambda chain: -chain.net):
        for seconds in (min(FIRST_LOOK_S, options.again_s[0]), options.again_s[0]):
            timed = _timed_again(search, timer, chain, until, options, seconds)
            if timed.lower_bound > 0.0:
                sure.append(timed)
            if abs(timed.net) > timed.half:
                break
    return sure


def _equal(chains: list[RewriteChain]) -> list[RewriteChain]:
    """Return those that may be the best one."""
    top = max(chain.lower_bound for chain in chains)
    return [chain for chain in chains if chain.net + chain.half >= top]


def _chosen(search: Search, equal: list[RewriteChain], options: RegionalOptions) -> RewriteChain:
    """Return, of chains that may all be the best one, that with the fewest steps, unless another seems to save more by
    what matters."""
    if len(equal) > 1:
        least = max(chain.net for chain in equal) - options.matters * _seconds(search)
        equal = [chain for chain in equal if chain.net >= least]
    return min(equal, key=lambda chain: (len(chain.steps), -chain.lower_bound))


def _seconds(search: Search) -> float:
    """Return the seconds of a run of the best graph."""
    return search.best.latency.ms / 1e3 if search.best is not None else 0.0


def _are_rivals(one: frozenset[int], other: frozenset[int]) -> bool:
    """Return whether two chains are about the same nodes, more or less: one over a large part of the model is no rival
    of one of its layers."""
    return 2 * len(one & other) >= max(len(one), len(other))


def _timed_again(
    search: Search,
    timer: Timer,
    chain: RewriteChain,
    until: Callable[[], bool],
    options: RegionalOptions,
    seconds: float | None = None,
) -> RewriteChain:
    """Time a chain once more, with the timer's own budget, or within `seconds` whatever is known."""
    note = chain.logged.noting("careful" if seconds is None else "anew", options.careful)
    timed = None if until() else time_cut(search, timer, chain.cut, seconds, note)
    if timed is None:
        return chain
    return replace(chain, saved=timed.seconds, half=timed.half)
