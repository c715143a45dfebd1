"""The environment `rewritegym/EGraphRewrite-v0`: the construction of an e-graph, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import asdict, dataclass
from typing import Any, Self, SupportsFloat, Unpack

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.checks import check_state, checked_action, restore_random
from envs.egraph.observation import applications, observe_egraph
from envs.observation import Observation, ObservationLimits, log_share
from envs.options import check_keywords, fields_given
from envs.problems import ProblemOptions, ProblemSource
from envs.reward import ILLEGAL_ACTION_REWARD
from envs.vocabulary import UNKNOWN, rule_vocabulary
from graph_rewrite.egraph import EGraph, apply_rule, can_match, from_graph, to_graph
from graph_rewrite.egraph.costs import NodeCost, SharedCostTracker, unit_cost
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.task.replay import ReplayError

FORMAT = 2
MAX_NODES, MAX_EDGES = 4096, 16384
"""Nodes and edges that observations are padded to by default."""
Info = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConstructionSettings:
    """Settings of an episode of construction."""

    horizon: int = 40
    """Steps after which an episode is truncated."""
    node_limit: int = 2000
    """E-nodes that end an episode."""
    latency: bool = False
    """Measure the extracted graph at the end."""

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.node_limit < 1:
            raise UserError(f"horizon and node_limit must be at least 1, got {self.horizon} and {self.node_limit}")


class EGraphRewriteOptions(ProblemOptions, total=False):
    """Keywords of `EGraphRewriteEnv`, beside those of `ProblemOptions` that say how its model is opened."""

    # Of ConstructionSettings.
    horizon: int
    node_limit: int
    latency: bool
    cost: NodeCost
    """Cost of an e-node alone; 1 per operator by default."""
    max_nodes: int
    max_edges: int
    """Sizes that observations are padded to; 4096 and 16384. Nodes and edges that do not fit are left out."""
    render_mode: None
    """There is nothing to render."""


class EGraphRewriteEnv(gymnasium.Env[Observation, int]):
    """Build an e-graph from an ONNX model, one rule at a time, so that a cheap graph can be extracted from it
    (Hartmann et al., PACT'24, as an environment).

    **Observation**: the entries of `GraphRewrite-v0`, padded; `envs.egraph.observation` says how they are made.
    `globals`: step / horizon, 0, first cost / cost, the same, 0, log2(1 + x) / 16 of the legal rules and of the
    applications in the e-graph, share of the node limit.

    **Action**: `Discrete(number of rules + 1)`. Action k applies rule k at all its matches (1,000 at most); the last is
    the No-Op, always legal, which ends the episode. `action_masks()` is false for rules that do not match, and for
    those that changed nothing since the e-graph last changed. An illegal action costs 1 and ends the episode.

    **Reward**: what the step saved of the extracted graph's cost, in percent of the original's; with `latency` also,
    at the episode's end, what the extracted graph saves of the original's latency, in percent, in place of the last
    step's.

    **End**: terminated by the No-Op, an illegal action, when no rule is legal, or when a step leaves `node_limit`
    e-nodes or more; truncated after `horizon` steps.

    **Info**: `model`, `step`, `rule`, `cost`, `first_cost`, `size`, `changed`, `illegal_action`, `speedup` (1.0 until
    latency was measured).

    Args:
        model: URI of a model.
        options: keywords, listed with their meaning and default in `EGraphRewriteOptions` and `ProblemOptions`.

    Raises:
        UserError: no such model, or a value that a keyword does not take.
        TypeError: there is no such keyword.

    Example:
        >>> env = EGraphRewriteEnv(model="zoo://bert-tiny", horizon=5)
        >>> observation, info = env.reset(seed=0)
        >>> done = False
        >>> while not done:
        ...     action = env.np_random.choice(np.flatnonzero(env.action_masks()))
        ...     observation, reward, terminated, truncated, info = env.step(action)
        ...     done = terminated or truncated
        >>> info["first_cost"], info["cost"]  # doctest: +SKIP
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space: spaces.Dict  # type: ignore[assignment]
    action_space: spaces.Discrete  # type: ignore[assignment]

    def __init__(self, model: str = "zoo://bert", **options: Unpack[EGraphRewriteOptions]) -> None:
        check_keywords("EGraphRewriteEnv", options, EGraphRewriteOptions.__optional_keys__)
        self.render_mode = options.get("render_mode")
        self.settings = ConstructionSettings(**fields_given(options, ConstructionSettings))
        self.cost = options.get("cost", unit_cost)
        self.problem = ProblemSource.from_options(model, options).first
        self.rules = self.problem.rewriter.rules
        self.limits = ObservationLimits(
            len(self.rules), options.get("max_nodes", MAX_NODES), options.get("max_edges", MAX_EDGES)
        )
        self.observation_space = self.limits.space()
        self.action_space = spaces.Discrete(len(self.rules) + 1)
        index = {name: number for number, name in enumerate(rule_vocabulary())}
        self._rule_numbers = [index.get(rule.name, UNKNOWN) for rule in self.rules]
        self._tracker: SharedCostTracker | None = None
        self._steps: list[int] = []
        self._useless: frozenset[int] = frozenset()
        self._over = False
        self._first_cost = self._current_cost = self._speedup = 1.0
        self._mask = np.zeros(len(self.rules) + 1, dtype=np.bool_)

    @property
    def no_op(self) -> int:
        """The action that ends the episode: the last one."""
        return len(self.rules)

    @property
    def egraph(self) -> EGraph:
        """The e-graph as it stands; not to be changed."""
        return self._running.egraph

    def extracted_graph(self) -> Graph:
        """The graph that the current e-graph's greedy extraction chooses."""
        return to_graph(self.egraph, self._running.choice())

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [rules + 1]: which actions are legal."""
        return self._mask.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start from the model's own e-graph.

        Raises:
            UserError: there are no options.
        """
        super().reset(seed=seed)
        if options:
            raise UserError(f"unknown reset options {sorted(options)}; there are none")
        self._tracker = SharedCostTracker(from_graph(self.problem.model.graph), self.cost)
        self._steps, self._useless, self._over, self._speedup = [], frozenset(), False, 1.0
        self._first_cost = self._current_cost = self._tracker.root_cost()
        self._mask = self._legal()
        return self._observe(), self._info("", changed=False, illegal=False)

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Apply a rule, or end the episode.

        Raises:
            gymnasium.error.ResetNeeded: the episode is over.
            UserError: the action is no whole number.
        """
        tracker, action = self._running, checked_action(action, self.no_op)
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        illegal = not (0 <= action < len(self._mask) and self._mask[action])
        rule, changed, before = "", False, self._current_cost
        self._steps.append(action)
        if not illegal and action != self.no_op:
            rule = self.rules[action].name
            # A copy, because forks of this environment may share the e-graph.
            self._tracker = tracker = tracker.fork(tracker.egraph.fork())
            changed = apply_rule(tracker.egraph, self.rules[action], faults=self.problem.rewriter.faults).changed
            tracker.update()
            self._useless = frozenset() if changed else self._useless | {action}
            self._current_cost = tracker.root_cost()
            self._mask = self._legal()
        full = tracker.egraph.size >= self.settings.node_limit
        terminated = illegal or action == self.no_op or full or not self._mask[:-1].any()
        truncated = len(self._steps) >= self.settings.horizon and not terminated
        self._over = terminated or truncated
        reward = 100.0 * (before - self._current_cost) / self._first_cost if self._first_cost else 0.0
        if illegal:
            reward = ILLEGAL_ACTION_REWARD
        elif self._over and self.settings.latency:
            reward = self._latency_reward()
        return self._observe(), float(reward), terminated, truncated, self._info(rule, changed, illegal)

    def fork(self) -> Self:
        """An independent environment in the same state, random generator included."""
        twin = copy(self)
        twin._steps, twin._np_random = list(self._steps), deepcopy(self._np_random)
        return twin

    def state(self) -> dict[str, Any]:
        """The episode as JSON-serialisable values."""
        return {
            "format": FORMAT,
            "model_hash": self.problem.model.graph.hash,
            "settings": asdict(self.settings),
            "steps": [self.rules[k].name if 0 <= k < self.no_op else k for k in self._steps],
            "cost": self._current_cost,
            "size": self.egraph.size,
            "random": self.np_random.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> tuple[Observation, Info]:
        """Go to a recorded state by applying its rules again. Returns what `reset` returns.

        Raises:
            ReplayError: recorded with another model, other settings, other rules or another cost function, or no
                recorded state.
        """
        check_state(state, ("format", "model_hash", "settings", "steps", "cost", "size", "random"))
        if state.get("format") != FORMAT or state.get("model_hash") != self.problem.model.graph.hash:
            raise ReplayError("the state was recorded with another model, or by another environment")
        if state["settings"] != asdict(self.settings):
            raise ReplayError(f"the state was recorded with the settings {state['settings']}, not {self.settings}")
        if not isinstance(state["steps"], list) or not all(isinstance(step, (str, int)) for step in state["steps"]):
            raise ReplayError("the steps of a state are a list of rules' names")
        numbers = {rule.name: k for k, rule in enumerate(self.rules)}
        observation, info = self.reset()
        for step in state["steps"]:
            if isinstance(step, str) and step not in numbers:
                raise ReplayError(f"the state was recorded with rule {step}, which is not among the rules here")
            if self._over:
                raise ReplayError("the recorded rules now end the episode before the last of them")
            observation, _, _, _, info = self.step(numbers[step] if isinstance(step, str) else step)
        if (self.egraph.size, self._current_cost) != (state["size"], state["cost"]):
            raise ReplayError("the recorded rules now build another e-graph, or cost something else")
        restore_random(self.np_random, state["random"])
        return observation, info

    def close(self) -> None:
        """Forget the episode."""
        self._tracker = None

    @property
    def _running(self) -> SharedCostTracker:
        if self._tracker is None:
            raise gymnasium.error.ResetNeeded("the environment has no state yet: call reset() first")
        return self._tracker

    def _legal(self) -> NDArray[np.bool_]:
        mask = np.zeros(len(self.rules) + 1, dtype=np.bool_)
        mask[-1] = True
        for k, rule in enumerate(self.rules):
            mask[k] = k not in self._useless and can_match(self.egraph, rule)
        return mask

    def _latency_reward(self) -> float:
        latency = self.problem.measure(self.extracted_graph())
        if not latency.ok:
            return -10.0
        self._speedup = latency.speedup
        return 100.0 * (1.0 - 1.0 / latency.speedup)

    def _observe(self) -> Observation:
        egraph, ratio = self.egraph, self._first_cost / self._current_cost if self._current_cost else 1.0
        features = (
            len(self._steps) / self.settings.horizon, 0.0, ratio, ratio, 0.0, log_share(int(self._mask[:-1].sum())),
            log_share(len(applications(egraph))), egraph.size / self.settings.node_limit,
        )  # fmt: skip
        return observe_egraph(egraph, self.rules, self._rule_numbers, self._mask, features, self.limits)

    def _info(self, rule: str, changed: bool, illegal: bool) -> Info:
        return {
            "model": self.problem.model.uri, "step": len(self._steps), "rule": rule, "cost": self._current_cost,
            "first_cost": self._first_cost, "size": self.egraph.size, "changed": changed, "illegal_action": illegal,
            "speedup": self._speedup,
        }  # fmt: skip
