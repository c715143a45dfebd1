"""The environment `rewritegym/EGraphRewrite-v0`: an e-graph is built, rule by rule, to extract a cheap graph from.

`env` is the environment, `observation` shows an e-graph in the entries of `rewritegym/GraphRewrite-v0`.
"""

from envs.egraph.env import ConstructionSettings, EGraphRewriteEnv, EGraphRewriteOptions

__all__ = ["ConstructionSettings", "EGraphRewriteEnv", "EGraphRewriteOptions"]
