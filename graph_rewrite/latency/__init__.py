"""Latency: meters that tell how fast a graph is compared with the one it came from.

`OrtMeter` times whole models in ONNX Runtime, in a worker process; `OperatorCostMeter` sums up operators as TASO does;
`windows.WindowMeter` times only what differs between two graphs.
"""

from graph_rewrite.latency.cache import MeasurementCache, default_cache_path
from graph_rewrite.latency.device import device_name
from graph_rewrite.latency.lock import LockTimeout, MachineLock, default_lock_path, unblocked_time, waited_seconds
from graph_rewrite.latency.meter import (
    BaselineError,
    ComparingMeter,
    ConfirmingMeter,
    Effort,
    FileMeter,
    InspectingMeter,
    Latency,
    LatencyMeter,
    Materialize,
    Measurable,
    MeasurementError,
)
from graph_rewrite.latency.noise import machine_report
from graph_rewrite.latency.operator_cost import OperatorCost, OperatorCostMeter
from graph_rewrite.latency.operator_spec import OperatorSpec, ValueType
from graph_rewrite.latency.ort_meter import Clock, OrtMeter
from graph_rewrite.latency.provider import Provider, ProviderChoice, ProviderError, resolve_provider
from graph_rewrite.runtime import (
    FULL,
    JUDGE,
    OPTIMIZERS,
    SCREEN,
    Deployment,
    FeedSpec,
    Plan,
    Status,
    WorkerStartError,
    open_session,
)

__all__ = [
    "FULL",
    "JUDGE",
    "OPTIMIZERS",
    "SCREEN",
    "BaselineError",
    "Clock",
    "ComparingMeter",
    "ConfirmingMeter",
    "Deployment",
    "Effort",
    "FeedSpec",
    "FileMeter",
    "InspectingMeter",
    "Latency",
    "LatencyMeter",
    "LockTimeout",
    "MachineLock",
    "Materialize",
    "Measurable",
    "MeasurementCache",
    "MeasurementError",
    "OperatorCost",
    "OperatorCostMeter",
    "OperatorSpec",
    "OrtMeter",
    "Plan",
    "Provider",
    "ProviderChoice",
    "ProviderError",
    "Status",
    "ValueType",
    "WorkerStartError",
    "default_cache_path",
    "default_lock_path",
    "device_name",
    "machine_report",
    "open_session",
    "resolve_provider",
    "unblocked_time",
    "waited_seconds",
]
