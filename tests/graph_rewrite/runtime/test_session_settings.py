"""Session settings: part of a deployment, written down only where they differ from ONNX Runtime's defaults."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.latency import Deployment, open_session, resolve_provider
from graph_rewrite.latency.models import matmul_model
from graph_rewrite.runtime import SessionSettings

PLAIN = '{"disabled_optimizers": [], "optimization_level": "all", "provider": "cpu", "threads": 1}'
CHANGES = {
    "enable_mem_pattern": False, "enable_cpu_mem_arena": False, "allow_spinning": False, "disable_prepacking": True,
    "dynamic_block_base": 4, "set_denormal_as_zero": True, "use_device_allocator_for_initializers": True,
}  # fmt: skip
CUDA_CHANGES = {
    "enable_cuda_graph": True, "use_tf32": False, "cudnn_conv_algo_search": "HEURISTIC", "prefer_nhwc": True,
}  # fmt: skip
PARALLEL = {"execution_mode": "parallel", "inter_op_threads": 2}

some_changes = st.sets(st.sampled_from(sorted(CHANGES))).map(lambda names: {name: CHANGES[name] for name in names})


def test_without_settings_keys_are_what_they_were() -> None:
    """Caches, recorded files and policies hold these texts."""
    assert Deployment().key == PLAIN
    assert Deployment("cuda", 3, "basic", frozenset({"GeluFusionL1"}), 16).to_json() == {
        "provider": "cuda", "threads": 3, "optimization_level": "basic", "disabled_optimizers": ["GeluFusionL1"],
        "nchwc_block": 16,
    }  # fmt: skip
    assert Deployment.from_json(json.loads(PLAIN)) == Deployment()


@given(some_changes, some_changes, st.booleans(), st.integers(1, 4))
def test_settings_survive_json_and_tell_deployments_apart(one: dict, other: dict, parallel: bool, threads: int) -> None:
    first = Deployment(threads=threads).with_settings({**one, **(PARALLEL if parallel else {})})
    assert Deployment.from_json(json.loads(json.dumps(first.to_json()))) == first
    assert set(first.to_json()) - set(Deployment().to_json()) == {*one, *(PARALLEL if parallel else ())}
    second = Deployment(threads=threads).with_settings(other)
    assert (first.key == second.key) == (first == second) == (one == other and not parallel)
    assert first.plain() == Deployment(threads=threads)


def test_every_setting_is_covered_here() -> None:
    assert {field.name for field in fields(SessionSettings)} == {*CHANGES, *CUDA_CHANGES, *PARALLEL}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allow_spining": False}, "no session setting is named 'allow_spining'; did you mean allow_spinning"),
        ({"zzz": 1}, "there are allow_spinning, "),
        ({"allow_spinning": 0}, "allow_spinning must be of type bool, got 0"),
        ({"dynamic_block_base": True}, "dynamic_block_base must be of type int"),
        ({"dynamic_block_base": -1}, "at least 0"),
        ({"execution_mode": "both"}, r"unknown execution_mode 'both'; use one of \['sequential', 'parallel'\]"),
        ({"execution_mode": "parallel"}, "needs at least 2"),
        ({"inter_op_threads": 2}, "'sequential' ignores them"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"threads": "2"}, "threads must be of type int"),
        ({"prefer_nhwc": True}, "prefer_nhwc: for provider 'cuda', and ignored by 'cpu'"),
    ],
)
def test_what_the_runtime_would_refuse_or_ignore_is_an_error(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Deployment().with_settings(changes)


def test_unknown_and_damaged_fields_of_a_record_are_errors() -> None:
    record = Deployment().to_json()
    with pytest.raises(ValueError, match=r"\[\] missing, \['allow_spining'\] unknown"):
        Deployment.from_json({**record, "allow_spining": False})
    with pytest.raises(ValueError, match="allow_spinning must be of type bool"):
        Deployment.from_json({**record, "allow_spinning": "no"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 10**9}, "threads must be at least 1 and at most 1024, got 1000000000"),
        ({"threads": "2"}, "threads must be of type int"),
        ({"threads": 2.5}, "threads must be of type int"),
        ({"threads": True}, "threads must be of type int"),
        ({"provider": ["cpu"]}, "provider must be of type str"),
        ({"provider": "rocm"}, "unknown provider 'rocm'"),
        ({"nchwc_block": "16"}, "nchwc_block must be of type int"),
        ({"disabled_optimizers": "GeluFusionL1"}, "disabled_optimizers must be of type list"),
        ({"disabled_optimizers": ["a;b"]}, "ONNX Runtime has no optimiser named"),
        ({"execution_mode": "parallel", "inter_op_threads": 10**6}, "inter_op_threads must be .* at most 1024"),
    ],
)
def test_records_of_untrusted_files_are_checked_against_a_closed_list(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Deployment.from_json({**Deployment().to_json(), **changes})


def test_options_of_a_session() -> None:
    plain, changed = Deployment(threads=2), Deployment(threads=2).with_settings({**CHANGES, **PARALLEL})
    options = plain.session_options()
    assert (options.enable_mem_pattern, options.enable_cpu_mem_arena) == (True, True)
    assert (options.execution_mode, options.inter_op_num_threads) == (ort.ExecutionMode.ORT_SEQUENTIAL, 1)
    assert plain.config_entries() == {}
    options = changed.session_options()
    assert (options.enable_mem_pattern, options.enable_cpu_mem_arena) == (False, False)
    assert (options.execution_mode, options.inter_op_num_threads) == (ort.ExecutionMode.ORT_PARALLEL, 2)
    wanted = {
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
        "session.dynamic_block_base": "4",
        "session.disable_prepacking": "1",
        "session.set_denormal_as_zero": "1",
        "session.use_device_allocator_for_initializers": "1",
    }
    assert changed.config_entries() == wanted
    assert {key: options.get_session_config_entry(key) for key in wanted} == wanted


def test_threads_that_never_spin_need_no_stop_while_they_are_timed() -> None:
    key = "session.force_spinning_stop"
    assert Deployment(threads=2).session_options(measuring=True).get_session_config_entry(key) == "1"
    calm = Deployment(threads=2).with_settings({"allow_spinning": False}).session_options(measuring=True)
    with pytest.raises(RuntimeError):
        calm.get_session_config_entry(key)


def test_options_of_the_cuda_provider() -> None:
    assert Deployment("cuda").providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert Deployment().providers() == ["CPUExecutionProvider"]
    assert Deployment("cuda").with_settings(CUDA_CHANGES).providers() == [
        (
            "CUDAExecutionProvider",
            {"enable_cuda_graph": "1", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC", "prefer_nhwc": "1"},
        ),
        "CPUExecutionProvider",
    ]


def test_what_a_graph_asks_of_cuda_is_left_out_elsewhere() -> None:
    class Asking:
        disabled_optimizers = frozenset({"GeluFusionL1"})
        session_settings = (("prefer_nhwc", True), ("threads", 2))

    assert Deployment().asked_by(Asking()) == Deployment(threads=2).with_disabled(["GeluFusionL1"])
    assert Deployment("cuda").asked_by(Asking()).settings.prefer_nhwc


# `set_denormal_as_zero` is left out: it would hold for the whole process of the tests.
@pytest.mark.parametrize("name", [*sorted(CHANGES.keys() - {"set_denormal_as_zero"}), "execution_mode"])
def test_a_session_opens_and_computes_the_same(tmp_path: Path, name: str) -> None:
    path = tmp_path / "matmul.onnx"
    path.write_bytes(matmul_model(8, constant=True).SerializeToString())
    changes = PARALLEL if name == "execution_mode" else {name: CHANGES[name]}
    session = open_session(path, Deployment(threads=2).with_settings(changes))
    (product,) = session.run(None, {"a": np.ones((8, 8), np.float32)})
    np.testing.assert_allclose(product, np.full((8, 8), 0.08), rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["use_tf32", "cudnn_conv_algo_search", "prefer_nhwc"])
def test_cuda_takes_the_options(tmp_path: Path, name: str) -> None:
    assert resolve_provider("auto") == "cuda"
    path = tmp_path / "matmul.onnx"
    path.write_bytes(matmul_model(8, constant=True).SerializeToString())
    session = open_session(path, Deployment("cuda").with_settings({name: CUDA_CHANGES[name]}))
    options = session.get_provider_options()["CUDAExecutionProvider"]
    assert options[name] == Deployment("cuda").with_settings({name: CUDA_CHANGES[name]}).settings.cuda_options()[name]
