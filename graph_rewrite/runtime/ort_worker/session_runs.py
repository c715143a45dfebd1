"""Runs of a session for a comparison: inputs for it, its outputs by name, and inputs that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .feeds import Feeds, FeedSpec, ModelInput, make_feeds
from .narrow_floats import run
from .sessions.protocol import ModelSession

Values = dict[str, Any]
Report = Callable[[str], None]


def feeds_of(session: ModelSession, specs: Sequence[Mapping[str, Any]]) -> list[Feeds]:
    """Return inputs for a session, one set per recipe. Raises ValueError as `make_feeds` does."""
    inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    return [make_feeds(inputs, FeedSpec.from_json(spec)) for spec in specs]


def run_model(session: ModelSession, feed: Feeds, names: Sequence[str] | None = None) -> Values:
    """Return the outputs of a model by name, or those in `names`; inputs that the model has not are left out."""
    wanted = [item.name for item in session.get_outputs()] if names is None else list(names)
    known = {item.name for item in session.get_inputs()}
    values = run(session, wanted, {name: value for name, value in feed.items() if name in known}) if wanted else []
    return dict(zip(wanted, values, strict=True))


def refusal(session: ModelSession, spec: Mapping[str, Any]) -> str:
    """Return why a model does not run on the inputs of a recipe; empty where it does."""
    try:
        run_model(session, feeds_of(session, [spec])[0])
    except Exception as error:  # whatever ONNX Runtime says about a shape is a refusal
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    return ""
