"""The kinds of errors that callers tell apart: a user's mistake, a machine that cannot do what was asked, and a rewrite
that is invalid.

Everything else is a bug and ends with its traceback. Subpackages derive their own errors from these.
"""

from __future__ import annotations


class UserError(ValueError):
    """A mistake of the user's: the message says what is wrong, where, and what to do. Command lines print it as one
    line and exit with status 2."""


class MachineError(RuntimeError):
    """The machine cannot do what was asked: a device does not answer, a measurement worker does not start, a model
    cannot be run. Command lines print the message as one line and exit with status 2."""


class InvalidRewriteError(ValueError):
    """A rewrite gives no valid graph: types do not fit, the graph would get a cycle, or a constant cannot be computed.
    Searches count it as a candidate that leads nowhere."""
