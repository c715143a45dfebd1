"""Rule faults: exceptions that a rule's own code raises, counted by rule, so that one faulty rule does not end a
search."""

from __future__ import annotations

import traceback
from collections import Counter


class RuleFaults:
    """Collects the exceptions that rules raise.

    Without a collector the exception goes through to the caller, as tests and users of the library want it. With one,
    the rule is refused at that match, the exception is counted, and the search goes on.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Number of exceptions, by the rule's name."""
        self.tracebacks: dict[str, str] = {}
        """Traceback of the first exception, by the rule's name."""

    def record(self, rule: str, error: BaseException) -> None:
        """Count an exception that a rule raised."""
        self.counts[rule] += 1
        if rule not in self.tracebacks:
            self.tracebacks[rule] = "".join(traceback.format_exception(error))

    def add(self, other: RuleFaults) -> None:
        """Add what another collector counted, such as that of another process."""
        self.counts.update(other.counts)
        self.tracebacks = {**other.tracebacks, **self.tracebacks}

    def __bool__(self) -> bool:
        """Return whether any rule raised an exception."""
        return bool(self.counts)

    def __str__(self) -> str:
        """Return a line that names each faulty rule with its count, the most frequent first; empty if there is none."""
        return ", ".join(f"rule {rule} raised {count} times" for rule, count in self.counts.most_common())
