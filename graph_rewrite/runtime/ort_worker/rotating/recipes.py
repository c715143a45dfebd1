"""Recipes of the inputs of a measurement: one, which gives many random inputs, or several, taken as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..feeds import FeedSpec

PROTOCOL = "in turn"
"""Part of the keys of stored latencies: those that were measured with one input are not mixed with others."""

Recipes = FeedSpec | Sequence[FeedSpec]


def as_recipes(recipes: Recipes) -> tuple[FeedSpec, ...]:
    """Return recipes as a tuple; one alone as such. Raises ValueError where there is none."""
    found = (recipes,) if isinstance(recipes, FeedSpec) else tuple(recipes)
    if not found:
        raise ValueError("at least one recipe of inputs is needed")
    return found


def recipes_to_json(recipes: Recipes) -> list[dict[str, Any]]:
    """Return plain values, for a request to a worker."""
    return [spec.to_json() for spec in as_recipes(recipes)]


def recipes_from_json(values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[FeedSpec, ...]:
    """Return the recipes of a request, which may hold one alone."""
    listed = [values] if isinstance(values, Mapping) else values
    return tuple(FeedSpec.from_json(entry) for entry in listed)


def recipes_key(recipes: Recipes) -> str:
    """Return a stable text that tells the inputs of two measurements apart, and both from inputs that do not rotate."""
    return f"{PROTOCOL}: {'; '.join(spec.key for spec in as_recipes(recipes))}"
