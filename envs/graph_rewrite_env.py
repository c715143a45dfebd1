"""The environment `rewritegym/GraphRewrite-v0`."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs import render, replay
from envs.episode import Episode, Step
from envs.observation import Limits, Observation, observe
from envs.problem import MeterSource, Problem, open_problem
from envs.reward import ILLEGAL_ACTION_REWARD, RewardContext, RewardFunction, XRLflowReward
from graph_rewrite.candidates import Candidate
from graph_rewrite.ir import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriter import Granularity

Info = dict[str, Any]


class GraphRewriteEnv(gymnasium.Env[Observation, int]):
    """Rewrite the graph of an ONNX model, one verified substitution at a time, to make it faster.

    **Observation**: X-RLflow's meta-graph (section 3.3.2) as a dictionary of arrays, padded to the limits. `C` is
    `max_candidates`, `V` `max_nodes`, `E` `max_edges`; `envs.observation` says how the meta-graph is built.

    | entry | dtype, shape | content |
    |---|---|---|
    | `node_op` | int32 [V] | index in `envs.vocabulary.operator_vocabulary()`; 0 is padding |
    | `node_features` | float32 [V, 10] | `envs.features.NODE_FEATURES` |
    | `node_candidate` | int32 [V] | -1 padding, 0 the current graph, k + 1 the region of candidate k |
    | `edge_index` | int32 [2, E] | source and target node of each edge |
    | `edge_shape` | float32 [E, 4] | shape of the tensor on the edge, divided by 4096 |
    | `candidate_rule` | int32 [C + 1] | index in `envs.vocabulary.rule_vocabulary()`; 0 is padding |
    | `candidate_features` | float32 [C + 1, 10] | `envs.observation.CANDIDATE_FEATURES` |
    | `globals` | float32 [8] | `envs.observation.GLOBAL_FEATURES` |
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

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}

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
        measure_last: bool = True,
        full_meta_graph: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if horizon < 1 or feedback_every < 1:
            raise ValueError(f"horizon and feedback_every must be at least 1, got {horizon} and {feedback_every}")
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}")
        self.limits = Limits(max_candidates, max_nodes, max_edges)
        self.horizon, self.feedback_every = horizon, feedback_every
        self.measure_last, self.full_meta_graph = measure_last, full_meta_graph
        self.render_mode = render_mode
        self.reward_fn: RewardFunction = XRLflowReward() if reward_fn is None else reward_fn
        self._opening: dict[str, Any] = {
            "meter": meter, "granularity": granularity, "deployment_choices": deployment_choices,
            "provider": provider, "threads": threads, "shapes": shapes,
        }  # fmt: skip
        self.models = (model,) if isinstance(model, str) else tuple(model)
        if problem is not None:
            self.models = (problem.model.uri,)
        if not self.models:
            raise ValueError("give at least one model")
        self._problems: dict[str, Problem] = {} if problem is None else {problem.model.uri: problem}
        self.problem = self._problem(self.models[0])
        """The model being optimised, with its rewriter and meter."""
        self._episode: Episode | None = None
        self.observation_space = self.limits.space()
        self.action_space = spaces.Discrete(max_candidates + 1)  # type: ignore[assignment]

    @property
    def no_op(self) -> int:
        """The action that ends the episode."""
        return self.limits.max_candidates

    @property
    def graph(self) -> Graph:
        """The current graph."""
        return self.episode.graph

    @property
    def candidates(self) -> Sequence[Candidate]:
        """What can be done to the current graph: action k takes candidate k."""
        return self.episode.candidates

    @property
    def best_graph(self) -> Graph:
        """The fastest graph measured in this episode; the original model where none was faster."""
        return self.episode.best_graph or self.problem.model.original

    @property
    def best_speedup(self) -> float:
        """Speed-up of `best_graph` over the original model; at least 1."""
        return self.episode.best_speedup

    @property
    def episode(self) -> Episode:
        """The state behind the observation."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("the environment has no state yet: call reset() first")
        return self._episode

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [C + 1]: which actions are legal. The name is the one that sb3-contrib's MaskablePPO looks for."""
        return self.episode.mask.copy()

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
            uri = self.models[int(self.np_random.integers(len(self.models)))] if len(self.models) > 1 else self.models[0]
        return self._begin(self._problem(uri))

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Take an action.

        Raises:
            gymnasium.error.ResetNeeded: the episode is over.
        """
        episode, number = self.episode, int(action)
        if episode.done:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        if not 0 <= number <= self.no_op or not episode.mask[number]:
            return self._refuse(number)
        before, failure = episode.speedup, ""
        if number == self.no_op:
            step = episode.stop(number)
        else:
            candidate = episode.candidates[number]
            try:
                step = episode.take(number)
            except ValueError:
                failure, step = "build", episode.fail(number, candidate)
        truncated = len(episode.steps) >= self.horizon
        ended = bool(failure) or number == self.no_op or episode.is_stuck
        latency = None if failure else self._feedback(ended or truncated)
        if latency is not None and not latency.ok:
            failure = latency.status
        episode.done = ended or truncated or bool(failure)
        reward = self._reward(step, before, latency, failure)
        terminated = ended or bool(failure)
        return (*self._view(), reward, terminated, truncated and not terminated, self._info(...))
