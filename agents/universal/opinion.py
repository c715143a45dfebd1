"""The policy's opinion of the steps that a state of a window offers; imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.effects.samples import share_after


@dataclass(frozen=True, slots=True)
class Opinion:
    """Probabilities of the steps of a state and of the stop, and the effects that are predicted of the steps."""

    probabilities: NDArray[np.float64]
    """[steps + 1], the last one is that of the stop; 0 for rules that training did not offer and for steps too large
    to be looked at."""
    effects: NDArray[np.float64]
    """[steps], log of the time before a step over the time after it; NaN where nothing can be said."""
    deviations: NDArray[np.float64]
    """[steps], standard deviations of `effects`."""

    @property
    def choice(self) -> int | None:
        """Number of the likeliest step; None where to stop is at least as likely."""
        best = int(self.probabilities.argmax())
        return None if self.probabilities[-1] >= self.probabilities[best] else best

    def likeliest(self, most: int, least: float) -> list[int]:
        """Return the numbers of the likeliest steps, at most so many, with a probability of at least `least` each."""
        order = np.argsort(-self.probabilities[:-1], kind="stable")[:most]
        return [int(number) for number in order if self.probabilities[number] >= least]

    def saving(self, step: int, share: float, optimism: float = 0.0) -> float | None:
        """Return the share of the window's time that a step is expected to save beyond `share`, which the steps before
        it save, with `optimism` standard deviations on top; None where nothing can be said."""
        hoped = float(self.effects[step] + optimism * self.deviations[step])
        return None if np.isnan(hoped) else float(share_after(share, hoped)) - max(share, -2.0)
