"""The providers that a deployment may name, and the runtime that each belongs to. A further runtime needs an entry here
and a file in `runtimes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ProviderFacts(NamedTuple):
    """All that is known of a provider without loading its runtime."""

    runtime: str
    """The module of `runtimes` that runs models with it."""
    title: str
    """The runtime's name for people."""
    session_providers: tuple[str, ...] = ()
    """Execution providers of an ONNX Runtime session, the preferred one first; empty for another runtime."""
    is_cpu: bool = True
    """Whether it runs on the CPU, and on nothing else."""
    domains: frozenset[str] | None = frozenset()
    """Domains of operators, besides ONNX's own, that rewrites may bring in; None for all that there are."""
    opset: int | None = None
    """The operator set that models are raised to, where the runtime lacks operators of the one that rules are written
    for."""

    @property
    def is_onnxruntime(self) -> bool:
        """Tell whether models run in ONNX Runtime, which has session settings, optimisers to refuse, libraries of
        operators and the blocked layout."""
        return bool(self.session_providers)


PROVIDERS: Mapping[str, ProviderFacts] = {
    "cpu": ProviderFacts("onnx_runtime", "ONNX Runtime", ("CPUExecutionProvider",), domains=None),
    # Operators of the blocked layout would bring their data back to the CPU.
    "cuda": ProviderFacts(
        "onnx_runtime", "ONNX Runtime", ("CUDAExecutionProvider", "CPUExecutionProvider"), False,
        frozenset({"com.microsoft"}),
        # It lacks operators that opset 22 redefines, and the CPU runs those: SqueezeNet in opset 23 takes 2.7 ms on an
        # H100 instead of 1.1, and cannot be recorded as a CUDA graph (ONNX Runtime 1.31).
        opset=20,
    ),
    "openvino": ProviderFacts("openvino_runtime", "OpenVINO"),
}  # fmt: skip
"""The providers by name."""
REFERENCE = "cpu"
"""The provider that computes the outputs which results are compared with, where a runtime cannot be told to leave a
model as it is."""
