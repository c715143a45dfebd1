"""Session choices: session settings of ONNX Runtime, numbers of threads, and orders of the nodes in the file, that may
suit this model better.

They change how a graph is run and not the graph, and they gain or lose with the whole of it. So they are chosen after
the graph, and the environments do not offer them. Every one but the order of the nodes, which the file brings along, is
a setting of the session that `open_session` opens, and of nothing else in the process. Left out is what saves memory
and not time: `use_device_allocator_for_initializers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.node_order import NODE_ORDERS, listed_nodes
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import NODE_ORDER, Deployment, can_flush
from graph_rewrite.system.cpu_count import available_cores, physical_cores

LOSSY_SETTINGS: Mapping[str, str] = {"set_denormal_as_zero": "denormals"}
"""Settings under which a model does not keep every value, with what it loses."""

_Change = tuple[tuple[str, bool | int | str], ...]
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "ConvTranspose"})
_PACKED = frozenset({"MatMul", "FusedMatMul", "Gemm", "Conv", "FusedConv"})
_PRODUCTS = _PACKED | _CONVOLUTIONS | {"Attention", "MultiHeadAttention"}
_SUBGRAPHS = frozenset({"If", "Loop", "Scan"})
_WITH_DENORMALS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})


@dataclass(frozen=True, slots=True)
class _Choice:
    """Settings that are made together."""

    settings: _Change
    provider: str
    suits: Callable[[Graph, Deployment], bool]
    """Tells whether the settings can make a difference."""

    @property
    def is_lossy(self) -> bool:
        return any(name in LOSSY_SETTINGS for name, _ in self.settings)


def _always(_graph: Graph, _deployment: Deployment) -> bool:
    return True


def _on_several_threads(_graph: Graph, deployment: Deployment) -> bool:
    return deployment.threads > 1


def _on_all_cores_with_branches(graph: Graph, deployment: Deployment) -> bool:
    """Operators side by side need threads of their own. Those may take no core that the deployment has not."""
    owns_all = 1 < physical_cores() <= deployment.threads
    return owns_all and any(len(readers) > 1 for readers in graph.consumers.values())


def _with_packed_weights(graph: Graph, _deployment: Deployment) -> bool:
    return any(
        node.op in _PACKED and any(value in graph.constants for value in node.inputs) for node in graph.nodes.values()
    )


def _with(operators: frozenset[str]) -> Callable[[Graph, Deployment], bool]:
    return lambda graph, _deployment: any(node.op in operators for node in graph.nodes.values())


def _with_single_precision_products(graph: Graph, _deployment: Deployment) -> bool:
    types = (graph.types.get(node.outputs[0]) for node in graph.nodes.values() if node.op in _PRODUCTS)
    return any(type is not None and type.dtype == TensorProto.FLOAT for type in types)


def _without_subgraphs(graph: Graph, _deployment: Deployment) -> bool:
    """A CUDA graph has no control flow: ONNX Runtime refuses such a model."""
    return bool(graph.nodes) and not any(node.op in _SUBGRAPHS for node in graph.nodes.values())


def _where_denormals_can_be_flushed(graph: Graph, _deployment: Deployment) -> bool:
    types = (graph.types.get(value) for node in graph.nodes.values() for value in node.outputs)
    return can_flush() and any(type is not None and type.dtype in _WITH_DENORMALS for type in types)


def _with_other_order(order: str) -> Callable[[Graph, Deployment], bool]:
    def differs(graph: Graph, _deployment: Deployment) -> bool:
        now = dict(graph.session_settings)
        return listed_nodes(graph.with_session_settings({**now, NODE_ORDER: order})) != listed_nodes(graph)

    return differs


_CHOICES = (
    *(_Choice(((NODE_ORDER, order),), "cpu", _with_other_order(order)) for order in NODE_ORDERS),
    _Choice((("execution_mode", "parallel"), ("inter_op_threads", 2)), "cpu", _on_all_cores_with_branches),
    _Choice((("dynamic_block_base", 4),), "cpu", _on_several_threads),
    _Choice((("allow_spinning", False),), "cpu", _on_several_threads),
    _Choice((("enable_mem_pattern", False),), "cpu", _always),
    _Choice((("enable_cpu_mem_arena", False),), "cpu", _always),
    _Choice((("disable_prepacking", True),), "cpu", _with_packed_weights),
    _Choice((("set_denormal_as_zero", True),), "cpu", _where_denormals_can_be_flushed),
    _Choice((("enable_cuda_graph", True),), "cuda", _without_subgraphs),
    _Choice((("prefer_nhwc", True),), "cuda", _with(_CONVOLUTIONS)),
    _Choice((("cudnn_conv_algo_search", "HEURISTIC"),), "cuda", _with(_CONVOLUTIONS)),
    _Choice((("cudnn_conv_algo_search", "DEFAULT"),), "cuda", _with(_CONVOLUTIONS)),
    _Choice((("use_tf32", False),), "cuda", _with_single_precision_products),
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


def session_candidates(
    graph: Graph, deployment: Deployment, threads: tuple[int, ...] = (), *, strict: bool = False
) -> list[Candidate]:
    """Return the session choices of a graph as candidates: each single change that may gain, in a fixed order.

    Args:
        deployment: the problem's, without what the graph asks for.
        threads: numbers of threads that may be chosen; none where the user has said one.
        strict: without the settings under which a model does not keep every value.
    """
    now = deployment.asked_by(graph)
    # Other threads than the deployment's are asked for because they are faster: there is no way back. Many first: they
    # take least time to measure.
    others = sorted(set(threads) - {now.threads, deployment.threads}, reverse=True)
    changes: list[_Change] = [(("threads", n),) for n in others]
    choices = [choice for choice in _CHOICES if choice.provider == now.provider and not (strict and choice.is_lossy)]
    changes += [choice.settings for choice in choices if choice.suits(graph, now)]
    # An order of nodes is no part of a deployment, and suits a graph only where it is another.
    return [
        _candidate(graph, change)
        for change in changes
        if NODE_ORDER in dict(change) or now.with_settings(dict(change)) != now
    ]


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
