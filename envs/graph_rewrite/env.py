"""The environment `rewritegym/GraphRewrite-v0`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any, Self, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.graph_rewrite.episode import Episode, Settings
from envs.graph_rewrite.observation import Observation, ObservationLimits
from envs.graph_rewrite.render import as_pixels, as_text
from envs.graph_rewrite.replay import episode_state, replay_episode
from envs.reward import ILLEGAL_ACTION_REWARD, RewardContext, RewardFunction, XRLflowReward
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.enumerator import Granularity
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import MeterSource, Problem, open_problem

Info = dict[str, Any]


class GraphRewriteEnv(gymnasium.Env[Observation, int]):
    """Rewrite the graph of an ONNX model, one verified substitution at a time, to make it faster.

    **Observation**: X-RLflow's meta-graph (section 3.3.2) as a dictionary of arrays, padded to the limits. `C` is
    `max_candidates`, `V` `max_nodes`, `E` `max_edges`; `envs.graph_rewrite.observation` says how the meta-graph is
    built.

    | entry | dtype, shape | content |
    |---|---|---|
    | `node_op` | int32 [V] | index in `envs.vocabulary.operator_vocabulary()`; 0 is padding |
    | `node_features` | float32 [V, 10] | `envs.features.NODE_FEATURES` |
    | `node_candidate` | int32 [V] | -1 padding, 0 the current graph, k + 1 the region of candidate k |
    | `edge_index` | int32 [2, E] | source and target node of each edge |
    | `edge_shape` | float32 [E, 4] | shape of the tensor on the edge, divided by 4096 |
    | `candidate_rule` | int32 [C + 1] | index in `envs.vocabulary.rule_vocabulary()`; 0 is padding |
    | `candidate_features` | float32 [C + 1, 10] | `envs.graph_rewrite.observation.CANDIDATE_FEATURES` |
    | `globals` | float32 [8] | `envs.graph_rewrite.observation.GLOBAL_FEATURES` |
    | `sizes` | int32 [3] | nodes, edges and candidates in use |

    **Action**: `Discrete(C + 1)`. Action k takes `env.candidates[k]`; the last one, C, is the No-Op, which is always
    legal and ends the episode. `action_masks()` is true where an action is legal: candidates that lead back to a graph
    visited in this episode are not, so inverse rules don't loop. An illegal action leaves the graph unchanged, costs
    1 and ends the episode.

    **Reward**: `reward_fn` of a `RewardContext`, by default X-RLflow's (section 3.3.3): with RT the latency,
    (RT[t-1] - RT[t]) / RT[0] * 100 on measured steps, where RT[t-1] is the last measured one; 0.1 on the steps between;
    -10 where the new graph cannot be built or run. Latency is measured every `feedback_every` steps, and always in the
    episode's last state. Latencies are relative to the original model's and are measured once per graph.

    **End**: terminated by the No-Op, by an illegal action, when no legal candidate is left, or when the new graph
    cannot be run; truncated after `horizon` steps. The result is `best_graph`, the fastest measured one.

    **Info**: `model`, `step`, `rule`, `match`, `kind`, `measured`, `latency_ms` and `speedup` (of the last measurement;
    0.0 and 1.0 before the first), `best_speedup`, `graph_hash`, `candidates`, `candidates_cut`, `illegal_action`,
    `failure` (empty, or why the new graph cannot be run: `build`, `crash`, `hang`, `oom` or `error`).

    Args:
        model: URI of a model (`zoo://bert?layers=2`, `file:model.onnx`), or several, of which `reset` draws one;
            `reset(options={"model": uri})` chooses.
        problem: an opened problem to use instead of `model`.
        meter: a latency meter, or a function (model, deployment, workspace) -> meter; ONNX Runtime by default.
        reward_fn: computes the reward of a step.
        horizon: steps after which an episode is truncated.
        feedback_every: N of X-RLflow: steps from one measurement to the next.
        max_candidates, max_nodes, max_edges: what observations are padded to. Candidates that don't fit are cut from
            the end, counted in `info["candidates_cut"]`, and cannot be chosen.
        granularity: offer rewrites per `site`, per `class` of alike sites, or `both`.
        deployment_choices: offer to refuse or keep ONNX Runtime's optimisers.
        provider, threads: the deployment that latencies are measured for.
        shapes: shapes of inputs with symbolic dimensions, by name.
        rules: rule sets that rewrite the graph, separated by commas: default, generated, taso, or all.
        result_limits: size, rounding and operators of every graph; one beyond them counts as one that cannot be run.
        measure_last: measure the last state; without it, only every `feedback_every` steps.
        full_meta_graph: observe each candidate's whole graph, as the paper does. Needs large limits and much time.
        render_mode: `ansi` (a table of the steps) or `rgb_array` (a drawing).

    Example:
        >>> env = GraphRewriteEnv(model="zoo://bert-tiny", horizon=5)
        >>> observation, info = env.reset(seed=0)
        >>> done = False
        >>> while not done:
        ...     action = env.np_random.choice(np.flatnonzero(env.action_masks()))
        ...     observation, reward, terminated, truncated, info = env.step(action)
        ...     done = terminated or truncated
        >>> info["best_speedup"]  # doctest: +SKIP
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}  # noqa: RUF012
    observation_space: spaces.Dict  # type: ignore[assignment]
    action_space: spaces.Discrete  # type: ignore[assignment]

    def __init__(
        self,
        model: str | Sequence[str] = "zoo://bert",
        *,
        problem: Problem | None = None,
        meter: MeterSource | None = None,
        reward_fn: RewardFunction | None = None,
        horizon: int = 40,
        feedback_every: int = 5,
        max_candidates: int = 512,
        max_nodes: int = 4096,
        max_edges: int = 8192,
        granularity: Granularity = "both",
        deployment_choices: bool = True,
        provider: str = "auto",
        threads: int = 1,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        rules: str = "default",
        result_limits: ResultLimits | None = None,
        measure_last: bool = True,
        full_meta_graph: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}")
        limits = ObservationLimits(max_candidates, max_nodes, max_edges)
        self.settings = Settings(horizon, feedback_every, measure_last, limits, full_meta_graph)
        self.render_mode = render_mode
        self.reward_fn: RewardFunction = XRLflowReward() if reward_fn is None else reward_fn
        self.models: tuple[str, ...] = (model,) if isinstance(model, str) else tuple(model)
        self._open = partial(
            open_problem, provider=provider, threads=threads, granularity=granularity,
            deployment_choices=deployment_choices, shapes=shapes, rules=rules, meter=meter,
            limits=result_limits,
        )  # fmt: skip
        self._problems: dict[str, Problem] = {}
        if problem is not None:
            self.models = (problem.model.uri,)
            self._problems[problem.model.uri] = problem
        if not self.models:
            raise ValueError("give at least one model")
        self.problem = self._problem(self.models[0])
        """The model being optimised, with its rewriter and meter."""
        self._episode: Episode | None = None
        self.observation_space = limits.space()
        self.action_space = spaces.Discrete(max_candidates + 1)

    @property
    def no_op(self) -> int:
        """The action that ends the episode: the last one."""
        return self.settings.limits.max_candidates

    @property
    def graph(self) -> Graph:
        """The current graph."""
        return self._running.graph

    @property
    def candidates(self) -> Sequence[Candidate]:
        """What can be done to the current graph: action k takes candidate k."""
        return self._running.candidates

    @property
    def best_graph(self) -> Graph:
        """The fastest graph measured in this episode; the original model where none was faster."""
        return self._running.best_graph or self.problem.model.original

    @property
    def best_speedup(self) -> float:
        """Speed-up of `best_graph` over the original model; at least 1."""
        return self._running.best_speedup

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [C + 1]: which actions are legal. The name is the one that sb3-contrib's MaskablePPO looks for."""
        return self._running.mask.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start an episode. `options={"model": uri}` chooses one of several models instead of drawing it.

        Raises:
            ValueError: unknown options, a model this environment was not made with, or one that exceeds the limits.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        uri = chosen.pop("model", None)
        if chosen:
            raise ValueError(f"unknown reset options {sorted(chosen)}; there is 'model'")
        if uri is None:
            drawn = int(self.np_random.integers(len(self.models))) if len(self.models) > 1 else 0
            uri = self.models[drawn]
        problem = self._problem(uri)
        return self._begin(Episode(problem, self.settings, problem.model.graph))

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Take an action.

        Raises:
            gymnasium.error.ResetNeeded: the episode is over.
        """
        episode = self._running
        if episode.terminated or episode.truncated:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        before = episode.speedup
        step = episode.advance(int(action), self.problem.measure)
        reward = ILLEGAL_ACTION_REWARD if step.kind == "illegal" else float(self.reward_fn(_context(episode, before)))
        return episode.observe(), reward, episode.terminated, episode.truncated, _info(episode)

    def fork(self) -> Self:
        """An independent environment in the same state, random generator included; shares model, meter and graphs."""
        twin = copy(self)
        twin._problems = dict(self._problems)
        twin._episode = None if self._episode is None else self._episode.fork()
        twin._np_random = deepcopy(self._np_random)
        return twin

    def state(self) -> dict[str, Any]:
        """The episode as JSON-serialisable values: model URI, settings, actions and random generator, no graphs."""
        return {**episode_state(self._running), "random": self.np_random.bit_generator.state}

    def restore(self, state: Mapping[str, Any]) -> tuple[Observation, Info]:
        """Go to a recorded state by taking its actions again; nothing is measured. Returns what `reset` returns.

        Raises:
            ReplayError: recorded with another model, other settings or other rules.
            ValueError: this environment was not made with the recorded model.
        """
        episode = replay_episode(state, self._problem(state["model"]), self.settings)
        self.np_random.bit_generator.state = state["random"]
        return self._begin(episode)

    def render(self) -> str | NDArray[np.uint8] | None:
        """The episode so far: a table as text (`ansi`), or a drawing as uint8 [360, 640, 3] (`rgb_array`)."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() does nothing: make the environment with render_mode='ansi' or 'rgb_array'")
            return None
        return as_text(self._running) if self.render_mode == "ansi" else as_pixels(self._running)

    def close(self) -> None:
        """Forget the episode. Model and meter are shared within the process; the meter's worker ends with it."""
        self._episode = None

    @property
    def _running(self) -> Episode:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("the environment has no state yet: call reset() first")
        return self._episode

    def _begin(self, episode: Episode) -> tuple[Observation, Info]:
        self._episode, self.problem = episode, episode.problem
        return episode.observe(), _info(episode)

    def _problem(self, uri: str) -> Problem:
        if uri not in self.models:
            raise ValueError(f"this environment was made with {', '.join(self.models)}, not with {uri}")
        if uri not in self._problems:
            self._problems[uri] = self._open(uri)
        return self._problems[uri]


def _context(episode: Episode, before: float) -> RewardContext:
    step = episode.steps[-1]
    failed = bool(step.failure)
    return RewardContext(
        previous=1.0 / before,
        current=math.inf if failed else 1.0 / episode.speedup,
        initial=1.0,
        measured=step.latency is not None,
        failed=failed,
        terminal=episode.terminated or episode.truncated,
        step=len(episode.steps),
        rule=step.rule,
        kind=step.kind,
        sites=step.sites,
        latency=step.latency,
        graph=episode.graph,
    )


def _info(episode: Episode) -> Info:
    step = episode.steps[-1] if episode.steps else None
    return {
        "model": episode.problem.model.uri,
        "step": len(episode.steps),
        "rule": step.rule if step else "",
        "match": step.match if step else "",
        "kind": step.kind if step else "",
        "measured": step is not None and step.latency is not None,
        "latency_ms": episode.measured.ms if episode.measured else 0.0,
        "speedup": episode.speedup,
        "best_speedup": episode.best_speedup,
        "graph_hash": episode.graph.hash,
        "candidates": len(episode.candidates),
        "candidates_cut": episode.choices.cut,
        "illegal_action": step is not None and step.kind == "illegal",
        "failure": step.failure if step else "",
    }
