"""Deployment: all that decides, beside the graph, how a runtime will run it."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import onnxruntime as ort

from .options.blocked_layout import block_size
from .options.optimizers import OPTIMIZERS
from .options.providers import PROVIDERS, REFERENCE, ProviderFacts
from .options.session_settings import (
    CUDA_NAMES,
    DEFAULT_SETTINGS,
    DENORMALS_ENTRY,
    NODE_ORDER,
    SETTING_NAMES,
    SessionSettings,
    SettingValue,
)
from .sessions.flushing import can_flush

# ORT_ENABLE_LAYOUT is left out: it is newer than the oldest runtime that we support and is `all` less float16 passes.
_LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_ERRORS_ONLY = 3
MOST_THREADS = 1024
"""Threads that a deployment may have. ONNX Runtime would start any number that a recorded file asks for."""
_REQUIRED = frozenset({"provider", "threads", "optimization_level", "disabled_optimizers"})
_OPTIONAL = SETTING_NAMES | {"nchwc_block"}
_KINDS = {
    "provider": str, "threads": int, "optimization_level": str, "disabled_optimizers": list, "nchwc_block": int,
}  # fmt: skip
"""Types of the fields in JSON that are no session settings."""


class DeploymentRequest(Protocol):
    """A graph as it asks to be run."""

    @property
    def disabled_optimizers(self) -> frozenset[str]:
        """Optimisers of ONNX Runtime to refuse."""
        ...

    @property
    def session_settings(self) -> tuple[tuple[str, SettingValue], ...]:
        """Session settings to change, and `threads`, by name."""
        ...


@dataclass(frozen=True, slots=True)
class Deployment:
    """Provider and threads. With the providers of ONNX Runtime, `cpu` and `cuda`, also the optimisation level and the
    optimisers that are refused; where the graph has operators of the blocked layout (`graph_rewrite.operators.nchwc`),
    the block of the CPUs that it runs on; and further settings of the session.

    Raises ValueError for what the runtime would silently ignore, such as the name of an optimiser it has not.
    """

    provider: str = "cpu"
    threads: int = 1
    optimization_level: str = "all"
    disabled_optimizers: frozenset[str] = frozenset()
    nchwc_block: int = 0
    """Channels in a block; 0 for a graph that runs with any."""
    settings: SessionSettings = DEFAULT_SETTINGS
    custom_ops: tuple[str, ...] = ()
    """Libraries of operators to load with the session, as paths. Loading one runs its code, so only a user names them:
    `to_json` leaves them out, and `from_json` takes none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "disabled_optimizers", frozenset(self.disabled_optimizers))
        if self.provider not in PROVIDERS:
            raise ValueError(
                f"Deployment: unknown provider {self.provider!r}; use one of {sorted(PROVIDERS)}"
                " (resolve_provider turns 'auto' into one of them)"
            )
        for name, count in (("threads", self.threads), ("inter_op_threads", self.settings.inter_op_threads)):
            if not 1 <= count <= MOST_THREADS:
                raise ValueError(f"Deployment: {name} must be at least 1 and at most {MOST_THREADS}, got {count}")
        if self.optimization_level not in _LEVELS:
            raise ValueError(
                f"Deployment: unknown optimization_level {self.optimization_level!r}; use one of {sorted(_LEVELS)}"
            )
        for name in sorted(self.disabled_optimizers.difference(OPTIMIZERS)):
            close = difflib.get_close_matches(name, OPTIMIZERS, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else "graph_rewrite.latency.OPTIMIZERS lists them"
            raise ValueError(f"Deployment: ONNX Runtime has no optimiser named {name!r} and would ignore it; {hint}")
        if self.provider != "cuda" and (foreign := self.settings.for_cuda()):
            raise ValueError(f"Deployment: {', '.join(foreign)}: for provider 'cuda', and ignored by {self.provider!r}")
        if not self.facts.is_onnxruntime and (foreign := self._for_onnxruntime()):
            raise ValueError(f"Deployment: {', '.join(foreign)}: for ONNX Runtime, and ignored by {self.facts.title}")

    @property
    def facts(self) -> ProviderFacts:
        """All that is known of the provider without loading its runtime."""
        return PROVIDERS[self.provider]

    def _for_onnxruntime(self) -> list[str]:
        """Return the names of the fields made that belong to ONNX Runtime."""
        made = {
            "optimization_level": self.optimization_level != "all", "disabled_optimizers": self.disabled_optimizers,
            "nchwc_block": self.nchwc_block, "custom_ops": self.custom_ops,
        }  # fmt: skip
        return [name for name, is_made in made.items() if is_made] + list(self.settings.to_json())

    def with_disabled(self, names: Iterable[str]) -> Self:
        """This deployment with `names` refused as well."""
        return replace(self, disabled_optimizers=self.disabled_optimizers.union(names))

    def with_settings(self, changes: Mapping[str, SettingValue]) -> Self:
        """Return this deployment with some session settings changed; `threads` counts as one of them.

        Raises:
            ValueError: no such setting, or a value that ONNX Runtime would not take.
        """
        changes = dict(changes)
        threads = changes.pop("threads", self.threads)
        if type(threads) is not int:
            raise ValueError(f"Deployment: threads must be of type int, got {threads!r}")
        for name in sorted(set(changes) - SETTING_NAMES):
            close = difflib.get_close_matches(name, SETTING_NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(SETTING_NAMES))}"
            raise ValueError(f"Deployment: no session setting is named {name!r}; {hint}")
        return replace(self, threads=threads, settings=replace(self.settings, **changes))  # type: ignore[arg-type]

    def asked_by(self, graph: DeploymentRequest) -> Self:
        """Return this deployment with the optimisers refused and the session settings made that a graph asks for; on
        another provider than CUDA without those of CUDA, and on another runtime than ONNX Runtime the threads alone.
        The order of its nodes is in its file."""
        if not self.facts.is_onnxruntime:
            threads = dict(graph.session_settings).get("threads")
            return self if threads is None else self.with_settings({"threads": threads})
        foreign = {NODE_ORDER, *(() if self.provider == "cuda" else CUDA_NAMES)}
        settings = {name: value for name, value in graph.session_settings if name not in foreign}
        return self.with_disabled(graph.disabled_optimizers).with_settings(settings)

    def plain(self) -> Self:
        """Return the deployment of a user without this tool: the same provider and threads, every optimiser on, and
        every session setting as ONNX Runtime has it."""
        return replace(
            self, optimization_level="all", disabled_optimizers=frozenset(), nchwc_block=0, settings=DEFAULT_SETTINGS
        )

    def unoptimised(self) -> Self:
        """Return the deployment of the same threads in which ONNX Runtime changes nothing of a model: on the same
        provider, or on the CPU where this one belongs to another runtime."""
        provider = self.provider if self.facts.is_onnxruntime else REFERENCE
        return replace(self.plain(), provider=provider, optimization_level="none")

    @property
    def key(self) -> str:
        """Stable text that tells two deployments apart; a library counts by content, not by name."""
        libraries = [_digest(path, os.stat(path).st_mtime_ns) for path in self.custom_ops]
        return json.dumps({**self.to_json(), **({"custom_ops": libraries} if libraries else {})}, sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON files and `metadata_props`; session settings only where they are not the default."""
        return {
            "provider": self.provider,
            "threads": self.threads,
            "optimization_level": self.optimization_level,
            "disabled_optimizers": sorted(self.disabled_optimizers),
            **({"nchwc_block": self.nchwc_block} if self.nchwc_block else {}),
            **self.settings.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; raises ValueError that names the fields that are missing, unknown or of another type.
        The fields, and the values of each that is no number, are a closed list."""
        if set(values) - _OPTIONAL != _REQUIRED:
            raise ValueError(
                f"Deployment: fields {sorted(_REQUIRED.difference(values))} missing,"
                f" {sorted(set(values).difference(_REQUIRED, _OPTIONAL))} unknown; a newer version may have written it"
            )
        values = {"nchwc_block": 0, **values}
        for name, kind in _KINDS.items():
            if type(values[name]) is not kind:
                raise ValueError(f"Deployment: {name} must be of type {kind.__name__}, got {values[name]!r}")
        return cls(
            provider=values["provider"],
            threads=values["threads"],
            optimization_level=values["optimization_level"],
            disabled_optimizers=frozenset(map(str, values["disabled_optimizers"])),
            nchwc_block=values["nchwc_block"],
            settings=SessionSettings.from_json({name: values[name] for name in values if name in SETTING_NAMES}),
        )

    def to_request(self) -> dict[str, Any]:
        """Return plain values for another process of ours, with the libraries of operators; never written to a file
        that is kept."""
        return {**self.to_json(), **({"custom_ops": list(self.custom_ops)} if self.custom_ops else {})}

    @classmethod
    def from_request(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_request`."""
        recorded = {name: value for name, value in values.items() if name != "custom_ops"}
        return replace(cls.from_json(recorded), custom_ops=tuple(map(str, values.get("custom_ops", ()))))

    def config_entries(self) -> dict[str, str]:
        """Return the entries of the session's configuration, by the keys that every binding of ONNX Runtime takes."""
        names = ";".join(sorted(self.disabled_optimizers))
        refused = {"optimization.disable_specified_optimizers": names} if names else {}
        return {**refused, **self.settings.config_entries()}

    def providers(self) -> list[str | tuple[str, dict[str, str]]]:
        """Return ONNX Runtime's execution providers with their options, as `onnxruntime.InferenceSession` takes
        them."""
        first, *rest = self.facts.session_providers
        cuda = self.settings.cuda_options()
        return [(first, cuda) if cuda else first, *rest]

    def session_options(self, *, measuring: bool = False) -> ort.SessionOptions:
        """Return options for a session of ONNX Runtime that runs as deployed; `measuring` is for several sessions timed
        in turn.

        Threads that go on spinning after a run would take cores from the other session's run; with `measuring` they
        stop when their session's run ends, and spin as usual during it.
        """
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = _ERRORS_ONLY
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[self.optimization_level])
        self.settings.apply_to(options)
        for key, value in self.config_entries().items():
            # Where only ONNX Runtime could set the calling thread, the whole process would have no denormals.
            if key != DENORMALS_ENTRY or can_flush():
                options.add_session_config_entry(key, value)
        if measuring and self.threads > 1 and self.settings.allow_spinning:
            options.add_session_config_entry("session.force_spinning_stop", "1")
        for path in self.custom_ops:
            options.register_custom_ops_library(path)
        return options


@functools.lru_cache(maxsize=64)
def _digest(path: str, _changed: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_block(path: str, deployment: Deployment) -> None:
    """Raise RuntimeError where the deployment of the model `path` names the block of another kind of CPU."""
    if deployment.nchwc_block and deployment.nchwc_block != block_size():
        raise RuntimeError(_other_block(path, deployment.nchwc_block, block_size()))


def _other_block(path: str, wanted: int, found: int) -> str:
    kind = "AVX-512" if wanted == 16 else "SSE, AVX and AVX2"
    here = f"blocks of {found}" if found else "no blocked layout"
    return (
        f"{path} has operators in ONNX Runtime's layout for CPUs with blocks of {wanted} channels ({kind} on x86), and"
        f" this CPU has {here}: it would fail or give wrong results. Optimise the original on this machine, or with"
        " --standard-ops-only for a model that runs anywhere"
    )
