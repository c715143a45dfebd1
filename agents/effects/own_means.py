"""Means of what steps save on this machine beyond those that ship, learnt from its own searches."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path

from agents.effects.means_file import SHIPPED, load_means
from agents.effects.step_means import StepMeans
from agents.effects.timed_steps import TimedStep, means_of_timed
from graph_rewrite.errors import UserError
from graph_rewrite.experience.exchange import labels_of
from graph_rewrite.experience.records import Label
from graph_rewrite.latency.cache import default_cache_path
from graph_rewrite.latency.device import machine_kind, processor_kind
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.runtime import PROVIDERS, Deployment
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.deadline import OutOfTime

FORMAT, VERSION = "rewritegym.own-steps", 2
LEARN = "rewritegym experience learn"
"""The command that writes them anew."""
LOCK_S = 10.0
"""Seconds to wait while another process writes the file."""
MOST_STEPS = 20_000
"""Steps that are kept; the oldest are forgotten first."""

Steps = Mapping[str, TimedStep]
"""Steps that were timed, by their ids."""

_THREADS = " threads of "


def own_steps_path() -> Path:
    """Return the file of the steps that this machine's searches timed, beside the measurement cache."""
    return default_cache_path().with_name("own-steps.json")


def own_kind(deployment: Deployment) -> str:
    """Return what the steps that a deployment timed here are kept under: the kind of machine
    (`graph_rewrite.latency.device.machine_kind`), and before it the number of a CPU's threads, if there are several."""
    kind, threads = machine_kind(deployment.provider), deployment.threads
    return f"{threads}{_THREADS}{kind}" if threads > 1 and deployment.facts.is_cpu else kind


def save_own(steps: Steps, kind: str, *, anew: bool = False) -> None:
    """Add steps that were timed on this machine to those that are known here.

    Args:
        steps: the steps; one that is known takes the place of what was known of it.
        kind: what they are kept under (`own_kind`).
        anew: forget what was known of that kind.

    Raises:
        OSError: the file cannot be written.
        LockTimeout: another process is writing it, and does not end.
    """
    path = own_steps_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with MachineLock(path.with_name(f"{path.name}.lock"), timeout_s=LOCK_S):
        try:
            known = _own(path)
        except UserError:  # what cannot be used gives way; the store of experience has it still
            known = {}
        before = {} if anew else known.get(kind, {})
        kept = {**{id_: one for id_, one in before.items() if id_ not in steps}, **steps}
        known[kind] = dict(list(kept.items())[-MOST_STEPS:])
        by_kind = {name: {id_: one.to_json() for id_, one in found.items()} for name, found in known.items()}
        whole = {"format": FORMAT, "version": VERSION, "kinds": by_kind}
        replace_file(path, json.dumps(whole, separators=(",", ":")).replace("],", "],\n") + "\n")


def remember(steps: Steps, deployment: Deployment) -> None:
    """Keep what a search has timed on this machine with a deployment for later searches. A file that cannot be written
    costs a warning, and nothing else."""
    if not steps:
        return
    try:
        save_own(steps, own_kind(deployment))
    except (OSError, OutOfTime) as error:  # a lock that is not free in time is an OSError
        warnings.warn(f"what this search learnt is lost: {error}", RuntimeWarning, stacklevel=2)


def means_here(deployment: Deployment) -> StepMeans:
    """Return the means that ship, with what is known of this kind of machine, and of this one by its own searches:
    first by those with another number of threads, and beyond them by those with this one. A file of own steps that
    cannot be used is left aside, with a warning.

    Args:
        deployment: the runtime and the threads that it is to be known of.

    Raises:
        UserError: the means that ship are missing, or of another format.
    """
    machine, kind = machine_kind(deployment.provider), own_kind(deployment)
    means = load_means(SHIPPED, machine)
    try:
        own = _own(own_steps_path())
    except UserError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        return means
    others = sorted(one for one in own if one != kind and machine_of(one) == machine)
    for steps in (own[one] for one in (*others, kind) if own.get(one)):
        means = means.extended(means_of_timed(steps.values(), means))
    return means


def machine_of(kind: str) -> str:
    """Return the kind of machine (`graph_rewrite.latency.device.machine_kind`) of what steps are kept under."""
    return kind.partition(_THREADS)[2] or kind


def labels_here(source: Path) -> list[Label]:
    """Return the labels of a store or an export that were timed in ONNX Runtime on this kind of processor.

    Raises:
        UserError: there is no such file, or no such label in it.
    """
    found = [label for label in _labels_of_here(source) if label.provider == "cpu"]
    if not found:
        raise UserError(f"{source}: no label of ONNX Runtime on this kind of processor ({processor_kind()})")
    return found


def labels_by_kind(source: Path) -> dict[str, list[Label]]:
    """Return the labels of a store or an export that were timed on this kind of processor or device, by what their
    steps are kept under (`own_kind`).

    Raises:
        UserError: there is no such file, or no such label in it.
    """
    found: dict[str, list[Label]] = {}
    for label in _labels_of_here(source):
        deployment = Deployment(label.provider, int(label.context["deployment"]["threads"]))
        found.setdefault(own_kind(deployment), []).append(label)
    return found


def _labels_of_here(source: Path) -> list[Label]:
    if not source.exists():
        raise UserError(f"{source}: there is no such store; a search of the agent regional begins one")
    kinds = {name: machine_kind(name) for name in PROVIDERS}
    found = [
        label
        for label in labels_of(source)
        if machine_kind(label.provider, str(label.context["device"])) == kinds[label.provider]
    ]
    if not found:
        raise UserError(f"{source}: no label of this kind of processor ({processor_kind()})")
    return found


def _own(path: Path) -> dict[str, dict[str, TimedStep]]:
    """Return the steps of a file, by kind of machine; none where there is no such file.

    Raises:
        UserError: it holds no steps, or those of another version.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            raise UserError(f"{path}: these steps are of another version of RewriteGym: learn them anew with {LEARN!r}")
        return {
            kind: {id_: TimedStep.from_json(one) for id_, one in steps.items()}
            for kind, steps in values["kinds"].items()
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: this holds no steps that were timed: learn them anew with {LEARN!r}") from error
