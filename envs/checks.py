"""Checks of what callers hand to an environment: actions, and recorded states."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from graph_rewrite.errors import UserError
from graph_rewrite.task.replay import ReplayError


def checked_action(action: Any, no_op: int) -> int:
    """Return an action as a Python integer. Integers out of range are illegal actions, which an episode counts.

    Raises:
        UserError: no whole number.
    """
    try:
        return operator.index(action)
    except TypeError:
        raise UserError(
            f"step({action!r}): an action is a whole number, of a candidate or {no_op} for the No-Op"
        ) from None


def check_state(state: Any, keys: Iterable[str]) -> None:
    """Refuse what no `state()` has returned.

    Raises:
        ReplayError: no mapping, or one without these keys.
    """
    if not isinstance(state, Mapping):
        raise ReplayError(f"restore() takes what state() returned, not {type(state).__name__}")
    missing = [key for key in keys if key not in state]
    if missing:
        raise ReplayError(f"restore() takes what state() returned; here {', '.join(missing)} is missing")


def restore_random(generator: np.random.Generator, state: Any) -> None:
    """Set a random generator to a recorded state.

    Raises:
        ReplayError: no state of such a generator.
    """
    try:
        generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise ReplayError(f"the recorded state of the random generator is none: {error!r}") from error
