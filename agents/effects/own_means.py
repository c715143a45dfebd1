"""Means of what steps save on this machine beyond those that ship, learnt from its own searches."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

from agents.effects.step_means import SHIPPED, StepMeans, load_means
from graph_rewrite.errors import UserError
from graph_rewrite.experience.exchange import labels_of
from graph_rewrite.experience.records import Label
from graph_rewrite.latency.cache import default_cache_path
from graph_rewrite.latency.device import processor_kind
from graph_rewrite.system.atomic_files import replace_file

FORMAT, VERSION = "rewritegym.own-means", 1
LEARN = "rewritegym experience learn"
"""The command that writes them."""


def own_means_path() -> Path:
    """Return the file of the machine's own means, beside the measurement cache."""
    return default_cache_path().with_name("own-means.json")


def save_own(path: Path, more: StepMeans, kind: str) -> None:
    """Write what steps save on a kind of processor beyond the means that ship.

    Raises:
        OSError: the file cannot be written.
    """
    whole = {"format": FORMAT, "version": VERSION, "kind": kind, "beyond": _digest(SHIPPED), **more.to_json()}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(whole, separators=(",", ":")) + "\n")


def means_here() -> StepMeans:
    """Return the means that ship, with what is known of this kind of processor, and of this machine by its own
    searches. A file of own means that cannot be used is left aside, with a warning.

    Raises:
        UserError: the means that ship are missing, or of another format.
    """
    kind = processor_kind()
    means = load_means(SHIPPED, kind)
    try:
        more = _own(own_means_path(), kind)
    except UserError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        more = None
    return means if more is None else means.extended(more)


def labels_here(source: Path) -> list[Label]:
    """Return the labels of a store or an export that were timed on this kind of processor.

    Raises:
        UserError: there is no such file, or no such label in it.
    """
    if not source.exists():
        raise UserError(f"{source}: there is no such store; a search of the agent regional begins one")
    kind = processor_kind()
    labels = [label for label in labels_of(source) if processor_kind(str(label.context["device"])) == kind]
    if not labels:
        raise UserError(f"{source}: no label of this kind of processor ({kind})")
    return labels


def _own(path: Path, kind: str) -> StepMeans | None:
    """Return what a file of own means says; None where there is none, or it is of another kind of processor.

    Raises:
        UserError: it holds none, or they were learnt beyond other means than those that ship.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
        if (values["format"], values["version"]) != (FORMAT, VERSION) or values["beyond"] != _digest(SHIPPED):
            raise UserError(
                f"{path}: these means go with another version of RewriteGym: learn them anew with {LEARN!r}"
            )
        return StepMeans.from_json(values) if values["kind"] == kind else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: this holds no means of steps: learn them anew with {LEARN!r}") from error


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
