"""Tables of windows out of experience, by the rules that ship."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from envs.observation import ObservationLimits
from envs.window.tabulation import LIMITS, Tabulation, tabulate
from graph_rewrite import Rewriter
from graph_rewrite.experience.records import Label
from graph_rewrite.rewriting.faults import RuleFaults


def tabulated(
    labels: Iterable[Label], limits: ObservationLimits = LIMITS, progress: Callable[[int, int], None] | None = None
) -> Tabulation:
    """Return the table of what labels tell, without deployment choices; a rule that fails is left out where it does.

    Args:
        labels: of a store, or of an export.
        limits: sizes of states; larger windows and steps are left out.
        progress: told the windows that are done, and all.

    Raises:
        NoWindowError: none of their windows can be made again.
    """
    return tabulate(labels, Rewriter(deployment=False, faults=RuleFaults()), limits, progress)
