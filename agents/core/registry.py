"""Agents by name: ours, imported when first asked for, and those of other packages."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import yaml

from agents.core.base import Agent
from graph_rewrite.errors import UserError
from graph_rewrite.system.extras import require

GROUP = "rewritegym.agents"
"""Entry-point group under which other packages register agents: name = "package.module:Class"."""

AGENTS: dict[str, str] = {
    "random": "agents.random_agent:RandomAgent",
    "greedy": "agents.greedy:GreedyAgent",
    "regional": "agents.regional.agent:RegionalAgent",
    "taso": "agents.taso:TasoAgent",
    "mcts": "agents.mcts.agent:MCTSAgent",
    "tensat": "agents.egraph.tensat:TensatAgent",
    "egraph-mcts": "agents.egraph_mcts.agent:EGraphMCTSAgent",
    "ppo": "agents.policy_agent:PolicyAgent",
}
"""Our agents: `module:factory` by name. A factory takes options by keyword and returns an Agent."""

_LEARNED = ("torch", "stable_baselines3")
_ON_E_GRAPHS = ("highspy", "numba")
NEEDS: dict[str, tuple[str, ...]] = {
    "mcts": _LEARNED, "ppo": _LEARNED, "egraph-mcts": _ON_E_GRAPHS, "tensat": _ON_E_GRAPHS,
}  # fmt: skip
"""The foremost optional libraries that an agent needs, by name of the agent; their extra brings the others too."""


class PluginError(UserError, RuntimeError):
    """The agent of another package cannot be imported."""


def agent_names() -> list[str]:
    """Names of all agents that can be made, sorted; nothing is imported."""
    return sorted({*AGENTS, *_plugins()})


def make_agent(spec: str, **options: object) -> Agent:
    """Make an agent by name, with options: `greedy`, `greedy:beam=3,lookahead=2`.

    Ours come first; other packages add theirs under the entry-point group `rewritegym.agents`, and only the one that
    is asked for is imported. Where the factory has a parameter whose default is a dataclass, options set its fields. An
    agent made with options in `spec` is called by the whole spec, so that variants of one agent can be told apart.
    `options` given by keyword go on top of those in `spec`.

    Raises:
        UserError: no such agent, an option it does not have, or a value of the wrong kind; the message lists those
            that exist.
        MissingLibraryError: the agent needs a library that is not installed.
        PluginError: the agent of another package cannot be imported.
    """
    name, _, text = spec.partition(":")
    factory = _factory(name)
    parameters = _options(factory)
    given = {**_parse(spec, text, parameters), **options}
    unknown = [] if _takes_any(factory) else sorted(given.keys() - parameters.keys())
    if unknown:
        there_are = ", ".join(parameters) or "none"
        raise UserError(f"agent {name} has no option {', '.join(unknown)}; there are: {there_are}")
    agent = factory(**_grouped(factory, given))
    if text:
        agent.name = spec
    return agent


def _factory(name: str) -> Callable[..., Agent]:
    if name in AGENTS:
        require(f"Agent {name}", *NEEDS.get(name, ()))
        module, _, attribute = AGENTS[name].partition(":")
        factory: Callable[..., Agent] = getattr(import_module(module), attribute)
        return factory
    plugins = _plugins()
    if name not in plugins:
        raise UserError(f"there is no agent {name!r}; there are {', '.join(agent_names())}")
    point = plugins[name]
    try:
        loaded: Callable[..., Agent] = point.load()
    except (ImportError, AttributeError) as error:
        raise PluginError(f"agent {name} of another package ({point.value}) cannot be imported: {error}") from error
    return loaded


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _parameters(factory: Callable[..., Agent]) -> dict[str, Any]:
    """Return what the factory takes by keyword, with defaults; `inspect.Parameter.empty` stands for none."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: p.default for p in inspect.signature(factory).parameters.values() if p.kind in kinds}


def _options(factory: Callable[..., Agent]) -> dict[str, Any]:
    """Return the options of an agent with their defaults: what its factory takes by keyword, and in place of a
    parameter whose default is a dataclass the fields of that."""
    options: dict[str, Any] = {}
    for name, default in _parameters(factory).items():
        if _is_group(default):
            options |= {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
        else:
            options[name] = default
    return options


def _grouped(factory: Callable[..., Agent], given: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a factory for these options."""
    left = dict(given)
    groups: dict[str, object] = {}
    for name, default in _parameters(factory).items():
        if _is_group(default):
            changes: dict[str, Any] = {f.name: left.pop(f.name) for f in dataclasses.fields(default) if f.name in left}
            groups[name] = dataclasses.replace(default, **changes)
    return {**left, **groups}


def _is_group(default: object) -> bool:
    return dataclasses.is_dataclass(default) and not isinstance(default, type)


def _takes_any(factory: Callable[..., Agent]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())


def _parse(spec: str, text: str, options: Mapping[str, Any]) -> dict[str, object]:
    """Return the options in a spec, each of the type of its default."""
    values: dict[str, object] = {}
    for part in filter(None, text.split(",")):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not (key and separator and value):
            raise UserError(f"agent {spec}: write options as name:key=value,key=value")
        values[key] = _convert(spec, key, value, options.get(key))
    return values


def _convert(spec: str, key: str, value: str, default: Any) -> object:
    kind = type(default)
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UserError(f"agent {spec}: {key} must be {what}, not {value!r}") from None
    if _is_group(default):
        raise UserError(f"agent {spec}: {key} has several values, which a text cannot give")
    parsed = yaml.safe_load(value)
    if kind is bool and not isinstance(parsed, bool):
        raise UserError(f"agent {spec}: {key} must be true or false, not {value!r}")
    return value if kind is str else parsed
