"""The Gymnasium environment `rewritegym/GraphRewrite-v0` and its parts."""

from envs.graph_rewrite_env import GraphRewriteEnv
from envs.observation import Limits
from envs.problem import Problem, open_problem
from envs.replay import ReplayError, replay
from envs.reward import RewardContext, XRLflowReward
from envs.wrappers import GraphSpaceWrapper

__all__ = [
    "GraphRewriteEnv",
    "GraphSpaceWrapper",
    "Limits",
    "Problem",
    "ReplayError",
    "RewardContext",
    "XRLflowReward",
    "open_problem",
    "replay",
]
