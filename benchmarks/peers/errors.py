"""Reasons why a peer takes no part in a judgement."""

from __future__ import annotations

from graph_rewrite.errors import MachineError


class MissingPeer(MachineError):
    """A peer cannot take part here: a package, a device or a compiler is missing, or it cannot run this model at all.
    The message is the reason, for the results."""


class FailedPeer(MissingPeer):
    """A peer is installed and failed to prepare this model: it crashed, took too long, or made a file that cannot stand
    in for the original."""
