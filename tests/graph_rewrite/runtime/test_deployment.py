"""Deployments as values, and what sessions make of them."""

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.latency import OPTIMIZERS, Deployment, ProviderError, open_session, provider, resolve_provider
from graph_rewrite.latency.models import matmul_model
from graph_rewrite.runtime import WorkerFailure
from graph_rewrite.runtime.ort_worker.options.optimizers import active_in_log, registered_in_log

deployments = st.builds(
    Deployment,
    provider=st.sampled_from(["cpu", "cuda"]),
    threads=st.integers(1, 8),
    optimization_level=st.sampled_from(["none", "basic", "extended", "all"]),
    disabled_optimizers=st.frozensets(st.sampled_from(OPTIMIZERS), max_size=4),
)


@given(deployments)
def test_json_round_trip(deployment: Deployment) -> None:
    assert Deployment.from_json(json.loads(json.dumps(deployment.to_json()))) == deployment


@given(deployments, deployments)
def test_key_identifies(one: Deployment, other: Deployment) -> None:
    assert (one.key == other.key) == (one == other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "auto"}, "resolve_provider"),
        ({"threads": 0}, "at least 1"),
        ({"optimization_level": "99"}, "extended"),
        ({"disabled_optimizers": frozenset({"SkipLayerNormalizationFusion"})}, "did you mean SkipLayerNormFusion"),
        ({"disabled_optimizers": frozenset({"GeluFusionL1;GeluFusionL2"})}, "no optimiser named"),
    ],
)
def test_what_the_runtime_would_ignore_is_an_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Deployment(**options)  # type: ignore[arg-type]


def test_unknown_fields_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"\['threads'\] missing, \['cores'\] unknown"):
        Deployment.from_json({"provider": "cpu", "cores": 1, "optimization_level": "all", "disabled_optimizers": []})


def test_refusals_add_up_and_plain_drops_them() -> None:
    deployment = Deployment(threads=2).with_disabled(["GeluFusionL1"]).with_disabled(["NchwcTransformer"])
    assert deployment.disabled_optimizers == {"GeluFusionL1", "NchwcTransformer"}
    assert deployment.plain() == Deployment(threads=2)


def test_session_options() -> None:
    options = Deployment(threads=3).with_disabled(["GeluFusionL2", "GeluFusionL1"]).session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    names = options.get_session_config_entry("optimization.disable_specified_optimizers")
    assert names == "GeluFusionL1;GeluFusionL2"


@pytest.mark.parametrize("threads", [1, 2])
def test_session_runs(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "matmul.onnx"
    path.write_bytes(matmul_model(8, constant=True).SerializeToString())
    session = open_session(path, Deployment(threads=threads), measuring=True)
    (product,) = session.run(None, {"a": np.ones((8, 8), np.float32)})
    np.testing.assert_allclose(product, np.full((8, 8), 0.08), rtol=1e-5)


def test_log_of_a_session() -> None:
    log = (
        "[I:onnxruntime] GraphTransformer GeluFusionL1 modified: 1 with status: OK\n"
        "[I:onnxruntime] GraphTransformer GeluFusionL1 modified: 0 with status: OK\n"
        "[I:onnxruntime] GraphTransformer NchwcTransformer modified: 0 with status: OK\n"
        "[I:onnxruntime] GraphTransformer EnsureUniqueDQForNodeUnit modified: 1 with status: OK\n"
    )
    assert registered_in_log(log) == {"GeluFusionL1", "NchwcTransformer", "EnsureUniqueDQForNodeUnit"}
    assert active_in_log(log) == {"GeluFusionL1"}
    rules = active_in_log("GraphTransformer Level1_RuleBasedTransformer modified: 1")
    assert "ConvMulFusion" in rules
    assert "NchwcTransformer" not in rules


def test_provider() -> None:
    assert resolve_provider("cpu") == "cpu"
    assert resolve_provider("auto") in ("cpu", "cuda")
    with pytest.raises(ValueError, match="'auto', 'cpu', 'cuda' or 'openvino', got 'gpu'"):
        resolve_provider("gpu")


def test_cuda_without_a_device_is_a_clear_error() -> None:
    if resolve_provider("auto") == "cuda":
        pytest.skip("a CUDA device answers on this machine")
    with pytest.raises(ProviderError, match="'cuda' does not work here"):
        resolve_provider("cuda")


@pytest.mark.parametrize("driver", [False, True])
def test_cuda_is_tried_only_where_there_is_a_driver(monkeypatch: pytest.MonkeyPatch, driver: bool) -> None:
    """A process to try it in takes half a second, which a machine without NVIDIA's driver need not spend."""
    tried = list[str]()

    class Refusing:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *reason: object) -> None: ...

        def request(self, message: Mapping[str, object]) -> None:
            tried.append(str(message["kind"]))
            raise WorkerFailure("error", "probe", "no device answers")

    def load(library: str) -> None:
        if not driver:
            raise OSError(f"{library} is missing")

    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(provider, "WorkerClient", Refusing)
    fault = provider._cuda_fault.__wrapped__()
    assert ("no device answers" if driver else "is missing") in fault
    assert tried == (["probe_cuda"] if driver else [])


@pytest.mark.gpu
def test_cuda_where_a_device_answers() -> None:
    assert resolve_provider("auto") == "cuda"
