"""The recording of a result: the steps that led to it, in a form that outlives changes of code and weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.node_order import order_named
from graph_rewrite.replay.evidence import SiteRecord
from graph_rewrite.runtime import NODE_ORDER, Deployment
from graph_rewrite.system.atomic_files import replace_file

FORMAT = "rewritegym.actions"
VERSION = 1
MOST_BYTES = 256 << 20
"""Largest file that is read as a recording."""

_TEXTS = ("fingerprint", "fingerprint_any_size", "rules", "granularity", "model", "model_hash")

Kind = Literal["site", "class", "deployment"]


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One rewrite, at one site or at all of a class, or one choice of the deployment."""

    rule: str
    kind: Kind
    sites: int
    """Number of sites; 1 for a deployment choice."""
    description: str = ""
    key: str = ""
    """Key among the candidates when it was recorded: a hint, since keys change with weights and code."""
    at: tuple[SiteRecord, ...] = ()
    """The sites, in the order in which they are rewritten; empty in results that were recorded by keys alone."""
    refused: tuple[str, ...] | None = None
    """All refused optimisers after a deployment choice."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All session settings after a deployment choice."""
    after: str = ""
    """Fingerprint of the graph after the step."""
    after_any_size: str = ""
    """The same without the sizes of dimensions."""

    @property
    def where(self) -> tuple[str, ...]:
        """Return the names of the sites in the original file."""
        return tuple(site.where for site in self.at)

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain values."""
        values: dict[str, Any] = {
            "rule": self.rule, "kind": self.kind, "sites": self.sites, "description": self.description,
            "key": self.key, "after": self.after, "after_any_size": self.after_any_size,
        }  # fmt: skip
        if self.refused is not None:
            values |= {"refused": list(self.refused), "settings": dict(self.settings)}
        return {**values, "at": [site.to_json() for site in self.at]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RecordedStep:
        """Return the step of plain values. An entry `rewrites` of a result lacks most of them.

        Raises:
            UserError: something is missing or of another kind.
        """
        if not isinstance(values, Mapping) or not isinstance(values.get("rule"), str):
            raise UserError("a step must be an object with the name of a rule")
        rule = values["rule"]
        texts = {name: values.get(name, "") for name in ("description", "key", "after", "after_any_size")}
        sites, at, refused = values.get("sites", 1), values.get("at", []), values.get("refused")
        settings = values.get("settings", {})
        choice = rule.startswith(("refuse ", "keep "))
        kind = values.get("kind") or ("deployment" if choice else "site" if sites == 1 else "class")
        good = (
            type(sites) is int
            and sites >= 1
            and isinstance(at, list)
            and all(isinstance(t, str) for t in texts.values())
        )
        good = good and all(isinstance(site, dict) for site in at) and kind in get_args(Kind)
        if not good or not (refused is None or _is_texts(refused)) or not _is_settings(settings):
            raise UserError(f"the step of rule {rule} has an entry of the wrong kind")
        _check_choice(rule, refused or (), settings)
        return cls(
            rule, cast(Kind, kind), sites, at=tuple(map(SiteRecord.from_json, at)),
            refused=None if refused is None else tuple(refused), settings=settings, **texts,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recording:
    """The steps from a normalised graph to a result, and what that graph is recognised by."""

    steps: tuple[RecordedStep, ...]
    fingerprint: str = ""
    """Structural fingerprint of the normalised graph; empty in results that were recorded by keys alone."""
    fingerprint_any_size: str = ""
    opset: int = 0
    """Opset of the normalised graph."""
    rules: str = "default"
    """Names of the rule sets."""
    granularity: str = "both"
    domains: tuple[str, ...] | None = None
    """Domains of operators that rewrites might bring in; None for any."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes that were fixed where the model leaves them open."""
    deployment: Mapping[str, Any] = field(default_factory=dict)
    """Provider and threads for which the result was found."""
    version: str = ""
    """Version of RewriteGym."""
    commit: str = ""
    """Commit of its code, where it was known."""
    model: str = ""
    """The original file, relative to the folder of the recording's own."""
    model_hash: str = ""
    """Canonical hash of the original's graph, weights included."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Machine and versions for which the result was found, by name."""
    mutants: tuple[Mapping[str, Any], ...] = ()
    """Rules of steps that the search found itself, as plain values (`Rule.embedded`)."""

    def to_json(self) -> dict[str, Any]:
        """Return the recording as plain values."""
        return {
            "format": FORMAT, "format_version": VERSION, "rewritegym": self.version, "commit": self.commit,
            "model": self.model, "model_hash": self.model_hash, "environment": dict(self.environment),
            "fingerprint": self.fingerprint, "fingerprint_any_size": self.fingerprint_any_size, "opset": self.opset,
            "rules": self.rules, "granularity": self.granularity,
            "domains": None if self.domains is None else list(self.domains),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "deployment": dict(self.deployment), "steps": [step.to_json() for step in self.steps],
            **({"mutants": [dict(mutant) for mutant in self.mutants]} if self.mutants else {}),
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: object) -> Recording:
        """Return the recording of plain values: one by itself, a result that has it as `actions`, or an older result
        with nothing but `rewrites`.

        Raises:
            UserError: there is no recording in it, or one of a newer format.
        """
        if not isinstance(values, Mapping):
            raise UserError("it holds no recorded actions: a JSON object is needed")
        if values.get("format") == FORMAT:
            return _parsed(values)
        for name in ("actions", "result"):
            if isinstance(values.get(name), Mapping):
                return cls.from_json(values[name])
        rewrites = values.get("rewrites")
        mutants = values.get("mutants", [])
        if isinstance(rewrites, list) and _is_objects(mutants):
            return cls(tuple(map(RecordedStep.from_json, rewrites)), mutants=tuple(mutants))
        raise UserError(
            f'it holds no recorded actions: neither "format": "{FORMAT}", nor a result with "actions" or "rewrites"'
        )

    def write(self, path: Path) -> Path:
        """Write the recording to a file, as a whole or not at all."""
        replace_file(path, json.dumps(self.to_json(), indent=1) + "\n")
        return path


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Return the recording in a JSON file.

    Raises:
        UserError: no such file, no JSON, or no recording in it; the message names the file.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise UserError(f"{file} has more than {MOST_BYTES >> 20} MB: no recording is that large")
        return Recording.from_json(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not JSON but a binary file") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: not JSON ({error})") from error


def _parsed(values: Mapping[str, Any]) -> Recording:
    version = values.get("format_version")
    if not isinstance(version, int) or version > VERSION:
        raise UserError(
            f"the recorded actions have format {version!r}, this RewriteGym reads up to {VERSION}: update RewriteGym"
        )
    texts = {name: values.get(name, "") for name in _TEXTS}
    steps, domains, shapes = values.get("steps"), values.get("domains"), values.get("shapes", {})
    environment, mutants = values.get("environment", {}), values.get("mutants", [])
    deployment, opset = values.get("deployment", {}), values.get("opset", 0)
    good = all(isinstance(text, str) for text in texts.values()) and isinstance(steps, list)
    good = good and (domains is None or _is_texts(domains)) and isinstance(opset, int)
    good = good and isinstance(environment, dict) and all(isinstance(text, str) for text in environment.values())
    if not good or not _is_objects(mutants) or not isinstance(deployment, dict) or not _is_shapes(shapes):
        raise UserError("the recorded actions have an entry of the wrong kind")
    return Recording(
        tuple(map(RecordedStep.from_json, cast(list[Any], steps))), opset=opset,
        domains=None if domains is None else tuple(domains), deployment=deployment,
        shapes={name: tuple(shape) for name, shape in shapes.items()}, version=str(values.get("rewritegym", "")),
        commit=str(values.get("commit", "")), environment=environment,
        mutants=tuple(mutants), **texts,
    )  # fmt: skip


def _check_choice(rule: str, refused: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise UserError for optimisers or settings that ONNX Runtime has not, values that it would not take, or an order
    of nodes that there is not."""
    session = dict(settings)
    try:
        if NODE_ORDER in session:
            order_named(session.pop(NODE_ORDER))
        Deployment("cuda").with_settings(session).with_disabled(refused)
    except ValueError as error:
        raise UserError(f"the step of rule {rule}: {error}") from error


def _is_settings(values: object) -> bool:
    return isinstance(values, dict) and all(isinstance(value, (bool, int, str)) for value in values.values())


def _is_objects(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _is_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _is_shapes(values: object) -> bool:
    return isinstance(values, dict) and all(
        isinstance(shape, list) and all(isinstance(size, int) for size in shape) for shape in values.values()
    )
