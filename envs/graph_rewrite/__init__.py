"""The environment `rewritegym/GraphRewrite-v0`: a model's graph is rewritten, one candidate at a time.

`env` makes the environment from keywords, `episode_env` from parts; `episode` is what happens, without Gymnasium.
`meta_graph` observes it, with `footprint` (what a candidate changes) and `visited` (which candidates lead back);
`records` writes it down, `viewer` shows it, `wrappers` offers it in other spaces.
"""

from envs.graph_rewrite.env import GraphRewriteEnv, GraphRewriteOptions
from envs.graph_rewrite.episode import Episode, EpisodeSettings, EpisodeStep
from envs.graph_rewrite.episode_env import EpisodeEnv
from envs.graph_rewrite.meta_graph import MetaGraphObserver, ObservationLimitError
from envs.graph_rewrite.viewer import EpisodeViewer
from envs.graph_rewrite.wrappers import GraphSpaceWrapper
from graph_rewrite.task.replay import ReplayError, replay

__all__ = [
    "Episode", "EpisodeEnv", "EpisodeSettings", "EpisodeStep", "EpisodeViewer", "GraphRewriteEnv",
    "GraphRewriteOptions", "GraphSpaceWrapper", "MetaGraphObserver", "ObservationLimitError", "ReplayError", "replay",
]  # fmt: skip
