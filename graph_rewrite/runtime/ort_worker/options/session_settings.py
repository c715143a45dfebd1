"""Session settings: options of an ONNX Runtime session that change how a graph is run, and not which nodes it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import onnxruntime as ort

SettingValue = bool | int | str
_CONV_SEARCHES = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")
_EXECUTION_MODES = ("sequential", "parallel")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Options of an ONNX Runtime session and of its CUDA provider. The defaults are those of ONNX Runtime, under its
    own names.

    Raises ValueError for a value of another type, a mode that ONNX Runtime has not, and `inter_op_threads` that the
    execution mode would ignore.
    """

    execution_mode: str = "sequential"
    """`parallel` runs operators that do not depend on each other at the same time, on `inter_op_threads` threads."""
    inter_op_threads: int = 1
    enable_mem_pattern: bool = True
    """Plan the memory of all intermediate values as one block, from the first run on."""
    enable_cpu_mem_arena: bool = True
    """Keep freed memory for the next request instead of returning it to the system."""
    allow_spinning: bool = True
    """Let idle threads wait in a loop: work starts sooner, and the cores are busy meanwhile."""
    disable_prepacking: bool = False
    """Leave weights as they are instead of copying them into the layout of the kernels when the session opens."""
    dynamic_block_base: int = 0
    """Split the work of an operator into blocks that get smaller towards its end, so that no thread waits long; 4 is
    what ONNX Runtime recommends, 0 splits it evenly."""
    set_denormal_as_zero: bool = False
    """Compute with zero in the place of numbers below 1.2e-38. With plain ONNX Runtime the first session of a process
    decides for the thread that opens it, and every session for its own threads; `open_session` sets no more than the
    session."""
    use_device_allocator_for_initializers: bool = False
    """Allocate weights outside the arena."""
    enable_cuda_graph: bool = False
    """CUDA: record a run and replay it. With plain ONNX Runtime, inputs and outputs must be bound to fixed places
    (`io_binding`); `open_session` gives a session that does so."""
    use_tf32: bool = True
    """CUDA: multiply float32 matrices with 10 bits of mantissa, where the device can."""
    cudnn_conv_algo_search: str = "EXHAUSTIVE"
    """CUDA: how cuDNN chooses the algorithm of a convolution."""
    prefer_nhwc: bool = False
    """CUDA: run convolutions with the channels last."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, wanted = getattr(self, field.name), type(field.default)
            if type(value) is not wanted:
                raise ValueError(f"Deployment: {field.name} must be of type {wanted.__name__}, got {value!r}")
        _check_one_of("execution_mode", self.execution_mode, _EXECUTION_MODES)
        _check_one_of("cudnn_conv_algo_search", self.cudnn_conv_algo_search, _CONV_SEARCHES)
        if self.inter_op_threads < 1 or self.dynamic_block_base < 0:
            raise ValueError("Deployment: inter_op_threads must be at least 1 and dynamic_block_base at least 0")
        if (self.execution_mode == "parallel") != (self.inter_op_threads > 1):
            raise ValueError(
                f"Deployment: execution_mode {self.execution_mode!r} with inter_op_threads={self.inter_op_threads}:"
                " 'parallel' needs at least 2, and 'sequential' ignores them"
            )

    def to_json(self) -> dict[str, SettingValue]:
        """Return the settings that differ from ONNX Runtime's defaults, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; settings that are not named have their defaults. Raises ValueError for a value that
        ONNX Runtime would not take."""
        return cls(**values)

    def for_cuda(self) -> list[str]:
        """Return the names of the settings made that belong to the CUDA provider."""
        return [name for name in self.to_json() if name in CUDA_NAMES]

    def config_entries(self) -> dict[str, str]:
        """Return the entries of the session's configuration that say all settings with no option of their own."""
        entries = {}
        if not self.allow_spinning:
            entries["session.intra_op.allow_spinning"] = "0"
            if self.execution_mode == "parallel":
                entries["session.inter_op.allow_spinning"] = "0"
        if self.dynamic_block_base:
            entries["session.dynamic_block_base"] = str(self.dynamic_block_base)
        for name in ("disable_prepacking", "set_denormal_as_zero", "use_device_allocator_for_initializers"):
            if getattr(self, name):
                entries[f"session.{name}"] = "1"
        return entries

    def cuda_options(self) -> dict[str, str]:
        """Return the options of the CUDA provider that differ from its defaults."""
        return {name: _text(value) for name, value in self.to_json().items() if name in CUDA_NAMES}

    def apply_to(self, options: ort.SessionOptions) -> None:
        """Make the settings that are options of their own; others are `config_entries` and `cuda_options`."""
        options.inter_op_num_threads = self.inter_op_threads
        if self.execution_mode == "parallel":
            options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.enable_mem_pattern = self.enable_mem_pattern
        options.enable_cpu_mem_arena = self.enable_cpu_mem_arena


def _check_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"Deployment: unknown {name} {value!r}; use one of {list(known)}")


def _text(value: SettingValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


DENORMALS_ENTRY = "session.set_denormal_as_zero"
"""The entry of the configuration that sets the threads of a session."""
CUDA_NAMES = ("enable_cuda_graph", "use_tf32", "cudnn_conv_algo_search", "prefer_nhwc")
"""The names of the settings that belong to the CUDA provider."""
SETTING_NAMES = frozenset(field.name for field in fields(SessionSettings))
"""The names of all session settings."""
NODE_ORDER = "node_order"
"""What a graph may ask for besides: the order in which its file lists the nodes. A session needs no setting for it."""
DEFAULT_SETTINGS = SessionSettings()
"""The settings of ONNX Runtime itself."""
