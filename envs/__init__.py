"""The Gymnasium environment `rewritegym/GraphRewrite-v0` and its parts."""

from envs.graph_rewrite.env import GraphRewriteEnv
from envs.graph_rewrite.observation import ObservationLimits
from envs.graph_rewrite.replay import ReplayError, replay
from envs.graph_rewrite.wrappers import GraphSpaceWrapper
from envs.reward import RewardContext, XRLflowReward
from graph_rewrite.task.problem import Problem, open_problem

__all__ = [
    "GraphRewriteEnv",
    "GraphSpaceWrapper",
    "ObservationLimits",
    "Problem",
    "ReplayError",
    "RewardContext",
    "XRLflowReward",
    "open_problem",
    "replay",
]
