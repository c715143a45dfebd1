"""The environment `rewritegym/WindowRewrite-v0`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

from envs.feature_sets import FeatureSet
from envs.graph_rewrite.episode import EpisodeSettings
from envs.graph_rewrite.episode_env import EpisodeEnv
from envs.graph_rewrite.meta_graph import MetaGraphObserver
from envs.graph_rewrite.viewer import viewer_of
from envs.observation import ObservationLimits
from envs.options import check_keywords, fields_given
from envs.problems import ProblemOptions, ProblemSource
from envs.reward import RewardContext, RewardFunction
from envs.window.problems import WindowTimer, window_problems
from graph_rewrite.latency import MeasurementCache
from graph_rewrite.latency.windows import WindowMeter, traffic_of
from graph_rewrite.latency.windows.window import MARGIN
from graph_rewrite.runtime import Plan
from graph_rewrite.task.problem import Problem

HORIZON = 4
"""Steps of an episode by default: chains of three rewrites, and the stop."""
LIMITS = {"max_candidates": 64, "max_nodes": 2048, "max_edges": 8192}
"""Sizes that observations are padded to by default."""
LEAST_SHARE = -2.0
"""Share of a window's time below which a loss counts as this."""
PLAN = Plan(instances=1, min_instances=1, min_pairs=3, max_pairs=8, warmup=2, target_ci_width=0.02, budget_s=0.15)
"""The plan of one timing: one pair of sessions, as in the screen of a search by windows."""


class WindowRewriteOptions(ProblemOptions, total=False):
    """Keywords of `WindowRewriteEnv`, beside those of `ProblemOptions` that say how its model is opened."""

    horizon: int
    """Steps after which an episode is truncated; 4."""
    margin: int
    """Neighbours that a window takes in, in each direction; 3."""
    max_candidates: int
    max_nodes: int
    max_edges: int
    """Sizes that observations are padded to; 64, 2048 and 8192."""
    features: FeatureSet
    """The set of features: `full`, or `plain` for less; `full`."""
    timer: WindowTimer | None
    """Times windows; a `WindowMeter` of the deployment, which keeps times on disk."""
    reward_fn: RewardFunction | None
    """Computes the reward of a step; `WindowReward()`."""
    render_mode: str | None
    """`ansi` (a table of the steps) or `rgb_array` (a drawing); None."""


@dataclass(frozen=True, slots=True)
class WindowReward:
    """The share of the window's time that a step saves: rewards of an episode add up to what its chain saves.

    A chain that loses more than twice the window's time counts as one that loses that much.
    """

    failure: float = -1.0
    """Reward of a step after which the window cannot be run."""
    least: float = LEAST_SHARE
    """Least share that is saved."""

    def __call__(self, context: RewardContext) -> float:
        if context.failed:
            return self.failure
        return self.cut(1.0 - context.current) - self.cut(1.0 - context.previous)

    def cut(self, share: float) -> float:
        """Return a saved share, a large loss cut off."""
        return max(share, self.least)


class WindowRewriteEnv(EpisodeEnv):
    """Rewrite one window of an ONNX model, step by step, to make it faster.

    A window is the subgraph around a site with its surroundings, cut out and timed alone in some milliseconds.

    **Observation**: that of `GraphRewrite-v0` with the feature set `full`, of the window.

    **Action**: `Discrete(C + 1)`. Action k takes `env.candidates[k]`: a rule at all its sites in the window. The first
    step takes a site that the window was cut out for; later ones are those that the step before made possible, at sites
    that touch what the chain brought in. The last action stops. `action_masks()` says which are legal; an illegal one
    costs 1 and ends the episode.

    **Reward**: the share of the window's time that the step saves, negative where it loses; -1 where the window cannot
    be run after it. So the return is the share that the whole chain saves. Each graph is timed once.

    **End**: terminated by the stop, an illegal action, a window that cannot be run, or when no step is left; truncated
    after `horizon` steps.

    **Info**: that of `GraphRewrite-v0`; `model` is the window, such as `zoo://bert-tiny#3`, and `speedup` that of the
    window.

    Args:
        model: URI of a model. `reset` draws one of its windows; `reset(options={"model": name})` chooses, `env.models`
            has the names.
        options: keywords, listed with their meaning and default in `WindowRewriteOptions` and `ProblemOptions`.

    Raises:
        UserError: no such model, one without windows, or a value that a keyword does not take.
        TypeError: there is no such keyword.

    Example:
        >>> env = WindowRewriteEnv(model="zoo://bert-tiny")
        >>> observation, info = env.reset(seed=0)
        >>> done = False
        >>> while not done:
        ...     action = env.np_random.choice(np.flatnonzero(env.action_masks()))
        ...     observation, reward, terminated, truncated, info = env.step(action)
        ...     done = terminated or truncated
        >>> info["speedup"]  # doctest: +SKIP
    """

    def __init__(self, model: str = "zoo://bert-tiny", **options: Unpack[WindowRewriteOptions]) -> None:
        check_keywords("WindowRewriteEnv", options, WindowRewriteOptions.__optional_keys__)
        viewer = viewer_of(options.get("render_mode"))
        limits = ObservationLimits(**{**LIMITS, **fields_given(options, ObservationLimits)})
        observer = MetaGraphObserver(limits, features=options.get("features", "full"))
        settings = EpisodeSettings(horizon=options.get("horizon", HORIZON), feedback_every=1)
        problem = ProblemSource.from_options(model, options).first
        self.timer = options.get("timer") or _meter(problem)
        windows: Mapping[str, Problem] = window_problems(problem, self.timer, options.get("margin", MARGIN))
        source = ProblemSource(tuple(windows), windows.__getitem__)
        super().__init__(source, settings, observer, options.get("reward_fn") or WindowReward(), viewer)

    def close(self) -> None:
        """Forget the episode, and end the timer's process; a later measurement starts another."""
        super().close()
        self.timer.close()


def _meter(problem: Problem) -> WindowMeter:
    return WindowMeter(
        problem.deployment, workspace=problem.workspace, plan=PLAN, budget_s=0.0, exchange=False,
        traffic=traffic_of(problem.model.graph), cache=MeasurementCache(),
    )  # fmt: skip
