"""The vocabulary that the rule files of TASO and TENSAT share, and the error of both readers."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.terms.substitution import MalformedTermError

ACTIVATIONS = ("none", "sigmoid", "relu", "tanh")
"""By TASO's code, which TENSAT uses as well."""
PADDINGS = ("same", "valid")
"""By TASO's code, which TENSAT uses as well."""


class RuleFileError(MalformedTermError):
    """A rule file that cannot be read, or a rule that its format cannot express; the message says where."""


def choice(names: Sequence[str], code: int, what: str) -> str:
    """Return the name that a code stands for; `what` it names is for the error.

    Raises:
        MalformedTermError: there is no such code.
    """
    if not 0 <= code < len(names):
        raise MalformedTermError(f"unknown {what} {code}")
    return names[code]
