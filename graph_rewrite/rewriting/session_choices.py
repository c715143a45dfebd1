"""Session choices: session settings of ONNX Runtime, and numbers of threads, that may suit this model better.

They change how a graph is run and not the graph, and they gain or lose with the whole of it. So they are chosen after
the graph, and the environments do not offer them. Left out is what cannot gain or cannot be told here:

- `set_denormal_as_zero`: the first session of a process decides for the thread that runs the model, so that two
  sessions of one process cannot be compared, and what the user's process opened first is not known.
- `enable_cuda_graph`: a replayed run reads where the first one read, so that `session.run` may answer for old inputs.
- `use_tf32` and `cudnn_conv_algo_search`: ONNX Runtime's defaults are the fastest.
- `use_device_allocator_for_initializers`: it saves memory, not time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.cpu_count import available_cores

LOSSY_SETTINGS: Mapping[str, str] = {"set_denormal_as_zero": "denormals"}
"""Settings under which a model does not keep every value, with what it loses."""

_Change = tuple[tuple[str, bool | int | str], ...]
_PACKED = frozenset({"MatMul", "FusedMatMul", "Gemm", "Conv", "FusedConv"})


@dataclass(frozen=True, slots=True)
class _Choice:
    """Settings that are made together."""

    settings: _Change
    provider: str
    suits: Callable[[Graph, Deployment], bool]
    """Tells whether the settings can make a difference."""


def _always(_graph: Graph, _deployment: Deployment) -> bool:
    return True


def _on_several_threads(_graph: Graph, deployment: Deployment) -> bool:
    return deployment.threads > 1


def _on_all_cores_with_branches(graph: Graph, deployment: Deployment) -> bool:
    """Operators side by side need threads of their own. Those may take no core that the deployment has not."""
    owns_all = 1 < available_cores() <= deployment.threads
    return owns_all and any(len(readers) > 1 for readers in graph.consumers.values())


def _with_packed_weights(graph: Graph, _deployment: Deployment) -> bool:
    return any(
        node.op in _PACKED and any(value in graph.constants for value in node.inputs) for node in graph.nodes.values()
    )


def _with_convolutions(graph: Graph, _deployment: Deployment) -> bool:
    return any(node.op in ("Conv", "FusedConv", "ConvTranspose") for node in graph.nodes.values())


_CHOICES = (
    _Choice((("execution_mode", "parallel"), ("inter_op_threads", 2)), "cpu", _on_all_cores_with_branches),
    _Choice((("dynamic_block_base", 4),), "cpu", _on_several_threads),
    _Choice((("allow_spinning", False),), "cpu", _on_several_threads),
    _Choice((("enable_mem_pattern", False),), "cpu", _always),
    _Choice((("enable_cpu_mem_arena", False),), "cpu", _always),
    _Choice((("disable_prepacking", True),), "cpu", _with_packed_weights),
    _Choice((("prefer_nhwc", True),), "cuda", _with_convolutions),
)
"""The choices, in the order in which they are offered."""


def thread_choices(cores: int | None = None) -> tuple[int, ...]:
    """Return the numbers of threads to choose from where the user leaves it free: powers of two, all cores, and half of
    them, which may be the physical ones.

    Args:
        cores: the most; by default the cores that this process may use.
    """
    most = available_cores() if cores is None else cores
    return tuple(sorted({2**i for i in range(most.bit_length())} | {most, max(1, most // 2)}))


def session_candidates(graph: Graph, deployment: Deployment, threads: tuple[int, ...] = ()) -> list[Candidate]:
    """Return the session choices of a graph as candidates: each single change that may gain, in a fixed order.

    Args:
        deployment: the problem's, without what the graph asks for.
        threads: numbers of threads that may be chosen; none where the user has said one.
    """
    now = deployment.asked_by(graph)
    # Other threads than the deployment's are asked for because they are faster: there is no way back. Many first: they
    # take least time to measure.
    others = sorted(set(threads) - {now.threads, deployment.threads}, reverse=True)
    changes: list[_Change] = [(("threads", n),) for n in others]
    changes += [choice.settings for choice in _CHOICES if choice.provider == now.provider and choice.suits(graph, now)]
    return [_candidate(graph, change) for change in changes if now.with_settings(dict(change)) != now]


def session_candidate(graph: Graph, label: str) -> Candidate | None:
    """Return the session choice that a recorded name stands for, whether or not it is offered on this machine; None
    where it is the name of something else."""
    change = next((choice.settings for choice in _CHOICES if _label(choice.settings) == label), None)
    threads = re.fullmatch(r"set threads=([1-9]\d{0,3})", label)
    if threads is not None:
        change = (("threads", int(threads[1])),)
    return None if change is None else _candidate(graph, change)


def _candidate(graph: Graph, change: _Change) -> Candidate:
    settings = {**dict(graph.session_settings), **dict(change)}
    return Candidate(
        "deployment", graph, disabled_optimizers=graph.disabled_optimizers, label=_label(change),
        session_settings=tuple(sorted(settings.items())),
    )  # fmt: skip


def _label(change: _Change) -> str:
    return "set " + ", ".join(f"{name}={str(value).lower()}" for name, value in change)
