"""The inputs of a comparison, for both sides."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ..feeds import ModelInput
from .recipes import Recipes, as_recipes
from .rotation import Accepts, Rotation


class RotationPair:
    """The inputs of the last comparison, once for each side: with the same arrays, the side that runs second would find
    them in the cache. They are kept from session to session, so that they are made once."""

    def __init__(self) -> None:
        self._key: Any = None
        self._made: tuple[Rotation, Rotation] | None = None

    def of(
        self, inputs: Sequence[ModelInput], recipes: Recipes, accepts: Accepts | None = None
    ) -> tuple[Rotation, Rotation]:
        """Return equal inputs for both sides, for a model with these inputs. Raises ValueError as `Rotation` does."""
        specs = as_recipes(recipes)
        texts = [json.dumps(spec.to_json()) for spec in specs]
        key = tuple(inputs), texts, [os.stat(spec.npz).st_mtime_ns for spec in specs if spec.npz is not None]
        if self._made is None or self._key != key:
            self._made = None  # frees the memory first
            made = Rotation(inputs, specs, accepts)
            self._key, self._made = key, (made, made.copy())
        return self._made

    def last(self, copy: int) -> Rotation:
        """Return the first or the second copy of what was made last."""
        if self._made is None:
            raise RuntimeError("inputs are made for the baseline first")
        return self._made[copy]
