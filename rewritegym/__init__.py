"""RewriteGym: faster ONNX models by verified graph rewrites, chosen from measured latency.

Importing this package registers the Gymnasium environments ``rewritegym/GraphRewrite-v0``,
``rewritegym/EGraphRewrite-v0``, ``rewritegym/WindowRewrite-v0`` and ``rewritegym/WindowTable-v0``, and nothing more:
the names below are imported when they are first used, so Gymnasium, PyTorch and ONNX Runtime are not loaded before they
are needed.
"""

from typing import TYPE_CHECKING, Any

from rewritegym.registration import register_environments

if TYPE_CHECKING:
    from agents.optimization.api import optimize
    from envs import GraphRewriteEnv
    from graph_rewrite import Graph, Rewriter, Rule, all_rules, load, save
    from graph_rewrite.delivery.deployed import session

__version__ = "0.1.0"

ENV_ID = "rewritegym/GraphRewrite-v0"
EGRAPH_ENV_ID = "rewritegym/EGraphRewrite-v0"
WINDOW_ENV_ID = "rewritegym/WindowRewrite-v0"
WINDOW_TABLE_ENV_ID = "rewritegym/WindowTable-v0"

__all__ = [
    "EGRAPH_ENV_ID",
    "ENV_ID",
    "WINDOW_ENV_ID",
    "WINDOW_TABLE_ENV_ID",
    "Graph",
    "GraphRewriteEnv",
    "Rewriter",
    "Rule",
    "all_rules",
    "load",
    "optimize",
    "save",
    "session",
]

_HOME = {
    "Graph": "graph_rewrite",
    "GraphRewriteEnv": "envs",
    "Rewriter": "graph_rewrite",
    "Rule": "graph_rewrite",
    "all_rules": "graph_rewrite",
    "load": "graph_rewrite",
    "optimize": "agents.optimization.api",
    "save": "graph_rewrite",
    "session": "graph_rewrite.delivery.deployed",
}


def __getattr__(name: str) -> Any:
    from graph_rewrite.system.lazy_exports import public_name  # here, since `import rewritegym` loads nothing else

    return public_name(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_environments()
