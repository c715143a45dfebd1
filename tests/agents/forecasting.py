"""A prior that forecasts each step by its chain, whatever the window."""

from __future__ import annotations

from collections.abc import Sequence

from agents.effects.step_means import ChainStep, Forecast
from graph_rewrite.rewriting.candidates import Candidate


class ForecastsByChain:
    """A prior whose forecast of a chain holds in every window."""

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        """Return what is expected of the last step of a chain."""
        raise NotImplementedError

    def forecasts(
        self, steps: Sequence[Candidate], chains: Sequence[ChainStep], share: float, depth: int
    ) -> list[Forecast | None]:
        """Return what is expected of steps, after `depth` others."""
        assert [step.rule for step in steps] == [chain.rules[-1] for chain in chains]
        assert {len(chain.rules) for chain in chains} <= {depth + 1}
        return [self.forecast(*chain) for chain in chains]
