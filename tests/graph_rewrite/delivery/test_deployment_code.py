"""Code that opens a model as deployed: the Python runs here, C++ and C# are compared with what was read in their
documentation."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from graph_rewrite.delivery.deployment_code import deployment_code
from graph_rewrite.latency.models import matmul_model
from graph_rewrite.runtime import Deployment, open_session

PARALLEL = {"execution_mode": "parallel", "inter_op_threads": 2}
DEPLOYMENTS = {
    "plain": Deployment(),
    "refusing": Deployment(threads=2).with_disabled(["GeluFusionL2", "GeluFusionL1"]),
    "level": Deployment(optimization_level="extended"),
    "settings": Deployment(threads=2).with_settings(
        {"allow_spinning": False, "dynamic_block_base": 4, "disable_prepacking": True}
    ),
    "memory": Deployment().with_settings(
        {"enable_mem_pattern": False, "enable_cpu_mem_arena": False, "use_device_allocator_for_initializers": True}
    ),
    "parallel": Deployment(threads=2).with_settings({**PARALLEL, "allow_spinning": False}),
}
OPTIONS = (
    "intra_op_num_threads", "graph_optimization_level", "execution_mode", "enable_mem_pattern", "enable_cpu_mem_arena",
)  # fmt: skip


def run_python(code: str, path: Path) -> Any:
    names: dict[str, Any] = {}
    exec(compile(code, str(path), "exec"), names)
    return names["session"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_python_opens_the_model_as_rewritegym_does(tmp_path: Path, name: str) -> None:
    path, deployment = tmp_path / 'a "quoted" näme.onnx', DEPLOYMENTS[name]
    path.write_bytes(matmul_model(8, constant=True).SerializeToString())
    code = deployment_code(deployment, path)["python"]
    assert "rewritegym" not in code
    session, ours = run_python(code, path), open_session(path, deployment)
    made, wanted = session.get_session_options(), deployment.session_options()
    assert {option: getattr(made, option) for option in OPTIONS} == {o: getattr(wanted, o) for o in OPTIONS}
    if name == "parallel":
        assert made.inter_op_num_threads == 2
    entries = deployment.config_entries()
    assert {key: made.get_session_config_entry(key) for key in entries} == entries
    assert session.get_providers() == ours.get_providers()
    x = {"a": np.arange(64, dtype=np.float32).reshape(8, 8)}
    np.testing.assert_array_equal(session.run(None, x)[0], ours.run(None, x)[0])


def test_python_passes_options_to_the_cuda_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, Any]] = []
    deployment = Deployment("cuda").with_settings({"prefer_nhwc": True, "use_tf32": False})
    monkeypatch.setattr(
        ort, "InferenceSession", lambda path, options, providers: opened.append((path, providers)) or SimpleNamespace()
    )
    monkeypatch.setattr(ort, "preload_dlls", lambda: opened.append(("preload", None)))
    run_python(deployment_code(deployment, "m.onnx")["python"], Path("m.onnx"))
    assert opened == [("preload", None), ("m.onnx", deployment.providers())]


def test_plain_deployments_need_little_code() -> None:
    """Golden texts."""
    code = deployment_code(Deployment(threads=4), "model.onnx")
    assert code["python"] == (
        "import onnxruntime as ort\n"
        "\n"
        "options = ort.SessionOptions()\n"
        "options.intra_op_num_threads = 4\n"
        'session = ort.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])\n'
    )
    assert code["cpp"] == (
        "#include <onnxruntime_cxx_api.h>\n"
        "\n"
        "Ort::Env env(ORT_LOGGING_LEVEL_WARNING);\n"
        "Ort::SessionOptions options;\n"
        "options.SetIntraOpNumThreads(4);\n"
        'Ort::Session session(env, ORT_TSTR("model.onnx"), options);\n'
    )
    assert code["csharp"] == (
        "using Microsoft.ML.OnnxRuntime;\n"
        "\n"
        "var options = new SessionOptions();\n"
        "options.IntraOpNumThreads = 4;\n"
        'var session = new InferenceSession("model.onnx", options);\n'
    )


EVERYTHING = (
    Deployment("cuda", 2, "extended", frozenset({"GeluFusionL1", "GeluFusionL2"}))
    .with_settings({**PARALLEL, "allow_spinning": False, "enable_mem_pattern": False, "enable_cpu_mem_arena": False})
    .with_settings({"dynamic_block_base": 4, "disable_prepacking": True, "set_denormal_as_zero": True})
    .with_settings({"enable_cuda_graph": True, "use_tf32": False})
)
CONFIG = (
    ("optimization.disable_specified_optimizers", "GeluFusionL1;GeluFusionL2"),
    ("session.intra_op.allow_spinning", "0"),
    ("session.inter_op.allow_spinning", "0"),
    ("session.dynamic_block_base", "4"),
    ("session.disable_prepacking", "1"),
    ("session.set_denormal_as_zero", "1"),
)


def test_cpp_says_everything() -> None:
    lines = deployment_code(EVERYTHING, "m.onnx")["cpp"].splitlines()
    assert lines == [
        "#include <onnxruntime_cxx_api.h>",
        "",
        "// CUDA graphs: bind inputs and outputs to fixed places of the device (IOBinding) for every run;",
        "// any other run may answer for the inputs of an earlier one.",
        "// Open this session first, in the thread that runs it: the first one of a process decides for the",
        "// thread that opens it, which then computes without denormals whatever it does.",
        "Ort::Env env(ORT_LOGGING_LEVEL_WARNING);",
        "Ort::SessionOptions options;",
        "options.SetIntraOpNumThreads(2);",
        "options.SetGraphOptimizationLevel(GraphOptimizationLevel::ORT_ENABLE_EXTENDED);",
        "options.SetExecutionMode(ExecutionMode::ORT_PARALLEL);",
        "options.SetInterOpNumThreads(2);",
        "options.DisableMemPattern();",
        "options.DisableCpuMemArena();",
        *(f'options.AddConfigEntry("{key}", "{value}");' for key, value in CONFIG),
        "Ort::CUDAProviderOptions cuda;",
        'cuda.Update({{"enable_cuda_graph", "1"}, {"use_tf32", "0"}});',
        "options.AppendExecutionProvider_CUDA_V2(*cuda);",
        'Ort::Session session(env, ORT_TSTR("m.onnx"), options);',
    ]


def test_csharp_says_everything() -> None:
    lines = deployment_code(EVERYTHING, "m.onnx")["csharp"].splitlines()
    assert lines[:3] == ["using System.Collections.Generic;", "using Microsoft.ML.OnnxRuntime;", ""]
    assert lines[7:] == [
        "var options = new SessionOptions();",
        "options.IntraOpNumThreads = 2;",
        "options.GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_EXTENDED;",
        "options.ExecutionMode = ExecutionMode.ORT_PARALLEL;",
        "options.InterOpNumThreads = 2;",
        "options.EnableMemoryPattern = false;",
        "options.EnableCpuMemArena = false;",
        *(f'options.AddSessionConfigEntry("{key}", "{value}");' for key, value in CONFIG),
        "var cuda = new OrtCUDAProviderOptions();",
        'cuda.UpdateOptions(new Dictionary<string, string> { ["enable_cuda_graph"] = "1", ["use_tf32"] = "0" });',
        "options.AppendExecutionProvider_CUDA(cuda);",
        'var session = new InferenceSession("m.onnx", options);',
    ]


CUDA_CHOICES = {
    "enable_cuda_graph": True, "use_tf32": False, "cudnn_conv_algo_search": "HEURISTIC", "prefer_nhwc": True,
}  # fmt: skip


@pytest.mark.parametrize("name", CUDA_CHOICES)
def test_every_choice_for_cuda_is_said_in_every_language(name: str) -> None:
    value = {True: "1", False: "0"}.get(CUDA_CHOICES[name], CUDA_CHOICES[name])  # type: ignore[call-overload]
    code = deployment_code(Deployment("cuda").with_settings({name: CUDA_CHOICES[name]}), "m.onnx")
    assert f'("CUDAExecutionProvider", {{"{name}": "{value}"}})' in code["python"]
    assert f'cuda.Update({{{{"{name}", "{value}"}}}});' in code["cpp"]
    assert f'new Dictionary<string, string> {{ ["{name}"] = "{value}" }}' in code["csharp"]


@pytest.mark.parametrize(("block", "kind"), [(16, "AVX-512"), (8, "AVX2")])
def test_the_block_of_the_cpu_is_noted(block: int, kind: str) -> None:
    for code in deployment_code(Deployment(nchwc_block=block), "m.onnx").values():
        assert f"blocks of {block} channels" in code
        assert kind in code
