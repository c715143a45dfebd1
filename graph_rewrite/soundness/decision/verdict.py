"""The decision about two graphs."""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.soundness.decision.counterexample import Counterexample


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to whether two graphs compute the same function.

    `verdict` is "equal", "unequal" or "unknown"; `method` is "prime-field" or "z3", or empty where the verdict is
    unknown or comes from the reference semantics alone. `detail` says in a sentence what was shown, or why nothing was.
    """

    verdict: str
    method: str = ""
    detail: str = ""
    counterexample: Counterexample | None = None
    error_bound: float = 0.0
    """The probability with which random elements of the field hide a difference; 0 after a proof."""

    def __str__(self) -> str:
        text = f"{self.verdict}{f' by {self.method}' if self.method else ''}: {self.detail}"
        return text if self.counterexample is None else f"{text}\n{self.counterexample}"
