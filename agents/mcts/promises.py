"""Priors of a tree search out of what actions promise to save."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def priors_of(promises: Mapping[int, float | None], least: float) -> dict[int, float]:
    """Return probabilities of actions in proportion to what they promise, the likeliest first.

    Args:
        promises: share of the model's time that each action promises to save; None where nothing can be said, which
            counts as the mean of the others.
        least: what any action counts as at least, so that none is ruled out.
    """
    known = [max(one, least) for one in promises.values() if one is not None]
    usual = sum(known) / len(known) if known else 1.0
    counted = {action: usual if one is None else max(one, least) for action, one in promises.items()}
    total = sum(counted.values())
    return {action: counted[action] / total for action in sorted(counted, key=lambda action: -counted[action])}


def joint_saving(savings: Iterable[tuple[float, Collection[int]]]) -> float:
    """Return what actions save together that do not get in each other's way, those that save most first.

    Args:
        savings: of each action, the share of the time that it saves and the nodes that it rewrites.
    """
    taken, total = set[int](), 0.0
    for saving, nodes in sorted(savings, key=lambda one: -one[0]):
        if saving > 0.0 and taken.isdisjoint(nodes):
            taken |= set(nodes)
            total += saving
    return total
