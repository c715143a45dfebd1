"""Records of episodes as plain values: the model's URI and the actions taken, from which the same state is made again.

`graph_rewrite.task.replay` replays rewrites alone, without an environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from envs.checks import check_state, checked_action
from envs.graph_rewrite.episode import Episode, EpisodeSettings, EpisodeStep
from envs.graph_rewrite.meta_graph import MetaGraphObserver
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import ReplayError, find_candidate

FORMAT = 1


def episode_state(episode: Episode) -> dict[str, Any]:
    """A JSON-serialisable record of an episode: all that `replay_episode` needs, with the latencies that were seen."""
    problem = episode.problem
    return {
        "format": FORMAT,
        "model": problem.model.uri,
        "model_hash": problem.model.graph.hash,
        "settings": _settings_record(episode.settings, episode.observer),
        "granularity": problem.rewriter.granularity,
        "deployment_choices": problem.rewriter.deployment,
        "steps": [_step_record(step) for step in episode.steps],
        "graph_hash": episode.graph.hash,
    }


def replay_episode(
    state: Mapping[str, Any], problem: Problem, settings: EpisodeSettings, observer: MetaGraphObserver
) -> Episode:
    """The episode of a record: the same graph, the same observation.

    Latencies are taken from the record and not measured again.

    Raises:
        ReplayError: recorded with another model, other settings or other rules.
    """
    _check(state, problem, _settings_record(settings, observer))
    episode = Episode(problem, settings, observer, problem.model.graph)
    for number, record in enumerate(state["steps"], start=1):
        check_state(record, ("action", "key", "latency"))
        action = checked_action(record["action"], observer.limits.max_candidates)
        if record["key"]:
            action = find_candidate(
                episode.candidates, record["key"], number, problem.model.uri, action, record.get("match", "")
            )
        latency = _recorded(record, number)
        episode.advance(action, latency)
        if settings.given_feedback and record["latency"] is not None:
            episode.give_feedback(latency(episode.graph))
    if episode.graph.hash != state["graph_hash"]:
        raise ReplayError(
            f"replaying {len(state['steps'])} steps on {problem.model.uri} gave graph {episode.graph.hash} and not "
            f"{state['graph_hash']}: a rule with an unchanged name now does something else"
        )
    return episode


_ADDED = {"given_feedback": False, "step_scale": None, "features": "plain"}
"""Settings that older records lack, with the values that held then; they are written where they differ."""


def _settings_record(settings: EpisodeSettings, observer: MetaGraphObserver) -> dict[str, Any]:
    values = {**asdict(settings), **asdict(observer)}
    return {name: value for name, value in values.items() if name not in _ADDED or value != _ADDED[name]}


def _step_record(step: EpisodeStep) -> dict[str, Any]:
    latency = None if step.latency is None else step.latency.to_json()
    return {"action": step.action, "key": step.key, "rule": step.rule, "match": step.match, "latency": latency}


def _recorded(record: Mapping[str, Any], number: int) -> Any:
    def measure(graph: Graph) -> Latency:
        if record["latency"] is None:
            raise ReplayError(f"step {number} of the record has no latency, but feedback is due there")
        try:
            return Latency.from_json(record["latency"])
        except (KeyError, TypeError, ValueError) as error:
            raise ReplayError(f"step {number} of the record has no readable latency: {error!r}") from error

    return measure


def _check(state: Mapping[str, Any], problem: Problem, settings: Mapping[str, Any]) -> None:
    check_state(state["settings"], ())
    if not isinstance(state["steps"], list):
        raise ReplayError(f"the steps of a state are a list, not {type(state['steps']).__name__}")
    if state.get("format") != FORMAT:
        raise ReplayError(f"not a state of this environment in format {FORMAT}: format {state.get('format')!r}")
    here = {
        "model_hash": problem.model.graph.hash,
        "granularity": problem.rewriter.granularity,
        "deployment_choices": problem.rewriter.deployment,
        **settings,
    }
    there = {**state, **state["settings"]}
    here, there = {**_ADDED, **here}, {**_ADDED, **there}
    differing = [
        f"{name} was {there.get(name)!r}, is {value!r}" for name, value in here.items() if there.get(name) != value
    ]
    if differing:
        raise ReplayError(f"the state was recorded with other settings of {state['model']}: {'; '.join(differing)}")
