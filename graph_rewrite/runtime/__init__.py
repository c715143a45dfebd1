"""Running models in ONNX Runtime: deployments, inputs, timing, and a worker process that a faulty model cannot harm.

`ort_worker` is what both ends of the pipe share, and the worker itself. It imports numpy, onnxruntime and its own
modules only, and is started as a top-level package, so a worker starts without loading the rest of this project.
"""

from graph_rewrite.runtime.client import Status, WorkerClient, WorkerFailure, WorkerStartError
from graph_rewrite.runtime.ort_worker.deployment import MOST_THREADS, Deployment, check_block
from graph_rewrite.runtime.ort_worker.feeds import FeedSpec
from graph_rewrite.runtime.ort_worker.options.blocked_layout import block_size
from graph_rewrite.runtime.ort_worker.options.optimizers import OPTIMIZERS
from graph_rewrite.runtime.ort_worker.options.providers import PROVIDERS
from graph_rewrite.runtime.ort_worker.options.session_settings import NODE_ORDER, SETTING_NAMES, SessionSettings
from graph_rewrite.runtime.ort_worker.plan import FULL, JUDGE, SCREEN, Plan
from graph_rewrite.runtime.ort_worker.rotating.recipes import (
    PROTOCOL,
    Recipes,
    as_recipes,
    recipes_key,
    recipes_to_json,
)
from graph_rewrite.runtime.ort_worker.rotating.rotation import Rotation
from graph_rewrite.runtime.ort_worker.rotating.runner import Runner
from graph_rewrite.runtime.ort_worker.runtimes.opening import open_session, runtime_of
from graph_rewrite.runtime.ort_worker.sessions.flushing import can_flush
from graph_rewrite.runtime.ort_worker.sessions.protocol import ModelSession
from graph_rewrite.runtime.ort_worker.statistics import (
    Block,
    Estimate,
    chance_of_telling,
    estimate,
    log_ratios,
    median_standard_error,
    standard_error,
)
from graph_rewrite.runtime.ort_worker.timing import repeats_for, time_block

__all__ = [
    "FULL",
    "JUDGE",
    "MOST_THREADS",
    "NODE_ORDER",
    "OPTIMIZERS",
    "PROTOCOL",
    "PROVIDERS",
    "SCREEN",
    "SETTING_NAMES",
    "Block",
    "Deployment",
    "Estimate",
    "FeedSpec",
    "ModelSession",
    "Plan",
    "Recipes",
    "Rotation",
    "Runner",
    "SessionSettings",
    "Status",
    "WorkerClient",
    "WorkerFailure",
    "WorkerStartError",
    "as_recipes",
    "block_size",
    "can_flush",
    "chance_of_telling",
    "check_block",
    "estimate",
    "log_ratios",
    "median_standard_error",
    "open_session",
    "recipes_key",
    "recipes_to_json",
    "repeats_for",
    "runtime_of",
    "standard_error",
    "time_block",
]
