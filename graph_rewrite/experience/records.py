"""The rows of the store of experience: parts, which labels share, and labels.

Every row is plain JSON and is named by the digest of its content, so that the name is a checksum, equal rows are one,
and stores merge by taking what they lack. docs/concepts/experience.md describes the fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from graph_rewrite.ir.hashing import text_digest

SCHEMA_VERSION = 1
"""Number of the meaning of the fields. A reader refuses a larger one."""

PartKind = Literal["context", "model", "place", "plan", "step", "window"]
PART_KINDS: tuple[str, ...] = get_args(PartKind)
_VERSIONS = ("rewritegym", "commit")
"""Entries of a context that change nothing about what a window takes."""


def canonical(body: Mapping[str, Any]) -> str:
    """Return a body as its one JSON text: sorted names, no spaces, no NaN.

    Raises:
        ValueError: a number that JSON has not.
    """
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class SharedPart:
    """Something that many labels share, as its canonical text."""

    kind: str
    text: str

    @classmethod
    def of(cls, kind: PartKind, body: Mapping[str, Any]) -> SharedPart:
        """Return the part of a body."""
        return cls(kind, canonical(body))

    @property
    def id(self) -> str:
        """The digest of kind and content."""
        return text_digest([self.kind, self.text])


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A timed chain, as its canonical text, and the second at which it was timed first (Unix time).

    The time is no part of the name: a search that gets the same measurement out of the cache adds no second label.
    """

    text: str
    taken: int

    @property
    def id(self) -> str:
        """The digest of the content."""
        return text_digest(["label", self.text])

    @property
    def check(self) -> str:
        """A checksum of all that the name does not cover."""
        return text_digest([self.id, str(self.taken)])[:8]

    def parts(self) -> list[str]:
        """Return the ids of the parts that the label names itself."""
        body = json.loads(self.text)
        return [body["place"], body["context"], body["plan"], *body["steps"]]


@dataclass(frozen=True, slots=True)
class Label:
    """A label with all that it refers to."""

    id: str
    taken: int
    body: Mapping[str, Any]
    place: Mapping[str, Any]
    window: Mapping[str, Any]
    model: Mapping[str, Any]
    context: Mapping[str, Any]
    plan: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the rules of the chain."""
        return tuple(step["rule"] for step in self.steps)

    @property
    def ok(self) -> bool:
        """True where ONNX Runtime could run the window after the chain."""
        return bool(self.body["status"] == "ok")

    @property
    def circumstances(self) -> str:
        """Text that is equal for timings that may be compared: one machine, runtime and deployment, whatever the
        version of RewriteGym."""
        return canonical({name: value for name, value in self.context.items() if name not in _VERSIONS})

    @property
    def provider(self) -> str:
        """The provider that the window was timed with."""
        return str(self.context["deployment"]["provider"])

    @property
    def window_s(self) -> float:
        """Seconds that the whole window takes: of a thinned one, its time over the part that was timed."""
        return float(self.body["window_s"]) / float(self.body["part"])

    @property
    def share_of_window(self) -> float:
        """Saved seconds as a share of the window's time."""
        return float(self.body["saved_s"]) / int(self.body["sites"]) / self.window_s

    @property
    def share_of_model(self) -> float:
        """Seconds that the chain saves at all sites of the class, as a share of the model's time."""
        return float(self.body["saved_s"]) / float(self.body["model_s"])

    @property
    def half_of_model(self) -> float:
        """Half of the 95% interval of `share_of_model`."""
        return float(self.body["high_s"] - self.body["low_s"]) / 2.0 / float(self.body["model_s"])

    @property
    def half_of_window(self) -> float:
        """Half of the 95% interval of `share_of_window`."""
        return float(self.body["high_s"] - self.body["low_s"]) / 2.0 / int(self.body["sites"]) / self.window_s

    @property
    def family(self) -> str:
        """The architecture that the model belongs to: its name in the zoo or among the generated networks, else its
        fingerprint without sizes."""
        return str(self.model["family"] or self.model["fingerprint_any_size"])


def complete(rows: Iterator[LabelRow], bodies: Mapping[str, Mapping[str, Any]]) -> Iterator[Label]:
    """Yield labels with their parts; those that lack one are left out.

    Args:
        rows: the labels.
        bodies: all parts by id.
    """
    for row in rows:
        body = json.loads(row.text)
        place = bodies.get(body["place"])
        if place is None:
            continue
        wanted = (place["window"], place["model"], body["context"], body["plan"], *body["steps"])
        found = [bodies.get(part) for part in wanted]
        if all(part is not None for part in found):
            window, model, context, plan, *steps = (part for part in found if part is not None)
            yield Label(row.id, row.taken, body, place, window, model, context, plan, tuple(steps))
