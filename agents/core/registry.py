"""Agents by name: ours, imported when first asked for, and those of other packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import yaml

from agents.core.base import Agent
from graph_rewrite.errors import UserError

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
    "ppo": "agents.ppo.agent:PPOAgent",
}
"""Our agents: `module:factory` by name. A factory takes options by keyword and returns an Agent."""


class PluginError(UserError, RuntimeError):
    """The agent of another package cannot be imported."""


def agent_names() -> list[str]:
    """Names of all agents that can be made, sorted; nothing is imported."""
    return sorted({*AGENTS, *_plugins()})


def make_agent(spec: str, **options: object) -> Agent:
    """An agent by name, with options: `greedy`, `greedy:beam=3,lookahead=2`.

    Ours come first; other packages add theirs under the entry-point group `rewritegym.agents`, and only the one that
    is asked for is imported. An agent made with options in `spec` is called by the whole spec, so that variants of one
    agent can be told apart. `options` given by keyword go on top of those in `spec`.

    Raises:
        UserError: no such agent, an option it does not have, or a value of the wrong kind; the message lists those
            that exist.
        PluginError: the agent of another package cannot be imported.
    """
    name, _, text = spec.partition(":")
    factory = _factory(name)
    given = {**_parse(spec, text, factory), **options}
    unknown = [] if _takes_any(factory) else sorted(given.keys() - _options(factory).keys())
    if unknown:
        there_are = ", ".join(_options(factory)) or "none"
        raise UserError(f"agent {name} has no option {', '.join(unknown)}; there are: {there_are}")
    agent = factory(**given)
    if text:
        agent.name = spec
    return agent


def _factory(name: str) -> Callable[..., Agent]:
    if name in AGENTS:
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


def _options(factory: Callable[..., Agent]) -> Mapping[str, inspect.Parameter]:
    """What can be given by keyword."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: p for p in inspect.signature(factory).parameters.values() if p.kind in kinds}


def _takes_any(factory: Callable[..., Agent]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())


def _parse(spec: str, text: str, factory: Callable[..., Agent]) -> dict[str, object]:
    """Options in a spec, each of the type of its default."""
    values: dict[str, object] = {}
    for part in filter(None, text.split(",")):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not (key and separator and value):
            raise UserError(f"agent {spec}: write options as name:key=value,key=value")
        parameter = _options(factory).get(key)
        values[key] = _convert(spec, key, value, inspect.Parameter.empty if parameter is None else parameter.default)
    return values


def _convert(spec: str, key: str, value: str, default: Any) -> object:
    kind = type(default)
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise UserError(f"agent {spec}: {key} must be {what}, not {value!r}") from None
    parsed = yaml.safe_load(value)
    if kind is bool and not isinstance(parsed, bool):
        raise UserError(f"agent {spec}: {key} must be true or false, not {value!r}")
    return value if kind is str else parsed
