"""Recorded actions: the rewrites that led to a result, in a form that survives changes of the code, other weights and a
new export of the same architecture, and their replay."""

from graph_rewrite.replay.differences import ReplayDifference
from graph_rewrite.replay.fingerprint import fingerprint
from graph_rewrite.replay.recorder import UnrecordableError, record
from graph_rewrite.replay.recording import RecordedStep, Recording, read_recording
from graph_rewrite.replay.replaying import AppliedStep, Replay, replay

__all__ = [
    "AppliedStep",
    "RecordedStep",
    "Recording",
    "Replay",
    "ReplayDifference",
    "UnrecordableError",
    "fingerprint",
    "read_recording",
    "record",
    "replay",
]
