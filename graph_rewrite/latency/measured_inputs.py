"""The inputs that a meter measures with, and others for a model that fails on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graph_rewrite.runtime import FeedSpec, Recipes, as_recipes, recipes_key, recipes_to_json

FindRecipe = Callable[[], FeedSpec | None]


class MeasuredInputs:
    """Recipes of the inputs that runs take in turn: those of each recipe, or many random ones of a single one.

    Args:
        find: looks for inputs that the model runs on where it fails on `recipes`; it gives None where there are none.
    """

    def __init__(self, recipes: Recipes, find: FindRecipe | None = None) -> None:
        self._find = find
        self._take(recipes)

    def _take(self, recipes: Recipes) -> None:
        self.recipes, self.key = as_recipes(recipes), recipes_key(recipes)

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain values, for a request to a worker."""
        return recipes_to_json(self.recipes)

    def fall_back(self, *, search: bool) -> bool:
        """Take other inputs, and tell whether there are any: of many random ones the first alone, and where `search`
        says so those that are found, once.

        Raises:
            OutOfTime: the time limit is reached before it is known whether there are any.
        """
        found: FeedSpec | None = None
        first = self.recipes[0]
        if len(self.recipes) == 1 and first.npz is None and first.rotated is None:
            found = replace(first, rotated=())
        elif search and self._find is not None:
            found = self._find()  # which is there for another time where this one raises OutOfTime
            self._find = None
        if found is not None:
            self._take(found)
        return found is not None
