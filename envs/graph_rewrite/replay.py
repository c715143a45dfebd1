"""States as plain values: the model's URI and the actions taken, from which the same state is made again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from envs.graph_rewrite.episode import Episode, Settings, Step
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.problem import Problem

FORMAT = 1


class ReplayError(ValueError):
    """A recorded state or list of actions does not fit here; the message says what differs."""


def episode_state(episode: Episode) -> dict[str, Any]:
    """A JSON-serialisable record of an episode: all that `replay_episode` needs, with the latencies that were seen."""
    problem = episode.problem
    return {
        "format": FORMAT,
        "model": problem.model.uri,
        "model_hash": problem.model.graph.hash,
        "settings": asdict(episode.settings),
        "granularity": problem.rewriter.granularity,
        "deployment_choices": problem.rewriter.deployment,
        "steps": [_step_record(step) for step in episode.steps],
        "graph_hash": episode.graph.hash,
    }


def replay_episode(state: Mapping[str, Any], problem: Problem, settings: Settings) -> Episode:
    """The episode of a record: the same graph, the same observation.

    Latencies are taken from the record and not measured again.

    Raises:
        ReplayError: recorded with another model, other settings or other rules.
    """
    _check(state, problem, settings)
    episode = Episode(problem, settings, problem.model.graph)
    for number, record in enumerate(state["steps"], start=1):
        action = record["action"]
        if record["key"]:
            action = _find(episode.candidates, record, number, problem.model.uri)
        episode.advance(action, _recorded(record, number))
    if episode.graph.hash != state["graph_hash"]:
        raise ReplayError(
            f"replaying {len(state['steps'])} steps on {problem.model.uri} gave graph {episode.graph.hash} and not "
            f"{state['graph_hash']}: a rule with an unchanged name now does something else"
        )
    return episode


def replay(problem: Problem, keys: Iterable[str]) -> Graph:
    """The graph that candidates with these keys lead to, one after another, from the problem's first graph.

    Raises:
        ReplayError: a key is not among the candidates of its graph.
    """
    graph = problem.model.graph
    for number, key in enumerate(keys, start=1):
        candidates = problem.rewriter.candidates(graph)
        graph = candidates[_find(candidates, {"key": key}, number, problem.model.uri)].apply()
    return graph


def _step_record(step: Step) -> dict[str, Any]:
    latency = None if step.latency is None else step.latency.to_json()
    return {"action": step.action, "key": step.key, "rule": step.rule, "match": step.match, "latency": latency}


def _recorded(record: Mapping[str, Any], number: int) -> Any:
    def measure(graph: Graph) -> Latency:
        if record["latency"] is None:
            raise ReplayError(f"step {number} of the record has no latency, but feedback is due there")
        return Latency.from_json(record["latency"])

    return measure


def _find(candidates: Sequence[Candidate], record: Mapping[str, Any], number: int, uri: str) -> int:
    """Index of the recorded candidate: where it was, or else wherever its key is now."""
    action = record.get("action")
    if action is not None and action < len(candidates) and candidates[action].key == record["key"]:
        return int(action)
    for index, candidate in enumerate(candidates):
        if candidate.key == record["key"]:
            return index
    what = f" ({record['match']})" if record.get("match") else ""
    raise ReplayError(
        f"step {number} took candidate {record['key']}{what}, which {uri} does not offer there now: "
        "the rules, the granularity or the model have changed since it was recorded"
    )


def _check(state: Mapping[str, Any], problem: Problem, settings: Settings) -> None:
    if state.get("format") != FORMAT:
        raise ReplayError(f"not a state of this environment in format {FORMAT}: format {state.get('format')!r}")
    here = {
        "model_hash": problem.model.graph.hash,
        "granularity": problem.rewriter.granularity,
        "deployment_choices": problem.rewriter.deployment,
        **asdict(settings),
    }
    there = {**state, **state["settings"]}
    differing = [
        f"{name} was {there.get(name)!r}, is {value!r}" for name, value in here.items() if there.get(name) != value
    ]
    if differing:
        raise ReplayError(f"the state was recorded with other settings of {state['model']}: {'; '.join(differing)}")
