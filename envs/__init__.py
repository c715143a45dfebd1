"""Gymnasium environments over graph rewriting, each in a folder, and the modules that they share.

`graph_rewrite` rewrites a graph, `window` a part of one, `egraph` builds an e-graph. They share the problems that
episodes start from (`problems`), the observation (`observation`, `features`, `vocabulary`) and rewards (`reward`).
"""

from envs.graph_rewrite.env import GraphRewriteEnv
from envs.graph_rewrite.wrappers import GraphSpaceWrapper
from envs.observation import Observation, ObservationLimits
from envs.problems import ProblemSource
from envs.reward import RewardContext, RewardFunction, XRLflowReward
from graph_rewrite.task.problem import Problem, open_problem
from graph_rewrite.task.replay import ReplayError, replay

__all__ = [
    "GraphRewriteEnv", "GraphSpaceWrapper", "Observation", "ObservationLimits", "Problem", "ProblemSource",
    "ReplayError", "RewardContext", "RewardFunction", "XRLflowReward", "open_problem", "replay",
]  # fmt: skip
