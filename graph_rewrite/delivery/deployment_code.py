"""Code that opens a model as a deployment says, in plain ONNX Runtime: Python, C++ and C#."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from graph_rewrite.runtime import Deployment

_LEVELS = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
"""Graph optimisation levels that are not the default."""


def deployment_code(deployment: Deployment, path: str | os.PathLike[str]) -> dict[str, str]:
    """Return code that opens the model file `path` with plain ONNX Runtime as `deployment` says.

    Each text makes an object `session` and sets only what differs from ONNX Runtime's defaults, and the number of
    threads.

    Returns:
        The code by language: `python`, `cpp` and `csharp`.
    """
    model = Path(path).as_posix()
    texts = {"python": _python(deployment, model), "cpp": _cpp(deployment, model), "csharp": _csharp(deployment, model)}
    return {language: "\n".join(lines) + "\n" for language, lines in texts.items()}


def _python(deployment: Deployment, path: str) -> list[str]:
    settings, cuda = deployment.settings, deployment.provider == "cuda"
    lines = ["import onnxruntime as ort", "", *_notes(deployment, "#"), "options = ort.SessionOptions()"]
    lines.append(f"options.intra_op_num_threads = {deployment.threads}")
    if deployment.optimization_level in _LEVELS:
        level = _LEVELS[deployment.optimization_level]
        lines.append(f"options.graph_optimization_level = ort.GraphOptimizationLevel.{level}")
    if settings.execution_mode == "parallel":
        lines.append("options.execution_mode = ort.ExecutionMode.ORT_PARALLEL")
        lines.append(f"options.inter_op_num_threads = {settings.inter_op_threads}")
    if not settings.enable_mem_pattern:
        lines.append("options.enable_mem_pattern = False")
    if not settings.enable_cpu_mem_arena:
        lines.append("options.enable_cpu_mem_arena = False")
    for key, value in deployment.config_entries().items():
        lines.append(f"options.add_session_config_entry({_quoted(key)}, {_quoted(value)})")
    lines += [f"options.register_custom_ops_library({_quoted(library)})" for library in deployment.custom_ops]
    if cuda:
        lines.append("ort.preload_dlls()  # finds CUDA and cuDNN where they are installed as Python packages")
    providers = ", ".join(
        _quoted(entry) if isinstance(entry, str) else f"({_quoted(entry[0])}, {json.dumps(entry[1])})"
        for entry in deployment.providers()
    )
    return [*lines, f"session = ort.InferenceSession({_quoted(path)}, options, providers=[{providers}])"]


def _cpp(deployment: Deployment, path: str) -> list[str]:
    settings = deployment.settings
    lines = ["#include <onnxruntime_cxx_api.h>", "", *_notes(deployment, "//")]
    lines += ["Ort::Env env(ORT_LOGGING_LEVEL_WARNING);", "Ort::SessionOptions options;"]
    lines.append(f"options.SetIntraOpNumThreads({deployment.threads});")
    if deployment.optimization_level in _LEVELS:
        level = _LEVELS[deployment.optimization_level]
        lines.append(f"options.SetGraphOptimizationLevel(GraphOptimizationLevel::{level});")
    if settings.execution_mode == "parallel":
        lines.append("options.SetExecutionMode(ExecutionMode::ORT_PARALLEL);")
        lines.append(f"options.SetInterOpNumThreads({settings.inter_op_threads});")
    if not settings.enable_mem_pattern:
        lines.append("options.DisableMemPattern();")
    if not settings.enable_cpu_mem_arena:
        lines.append("options.DisableCpuMemArena();")
    for key, value in deployment.config_entries().items():
        lines.append(f"options.AddConfigEntry({_quoted(key)}, {_quoted(value)});")
    lines += [f"options.RegisterCustomOpsLibrary(ORT_TSTR({_quoted(library)}));" for library in deployment.custom_ops]
    if deployment.provider == "cuda":
        lines.append("Ort::CUDAProviderOptions cuda;")
        if cuda := settings.cuda_options():
            lines.append(f"cuda.Update({{{_pairs(cuda, '{{{}, {}}}')}}});")
        lines.append("options.AppendExecutionProvider_CUDA_V2(*cuda);")
    return [*lines, f"Ort::Session session(env, ORT_TSTR({_quoted(path)}), options);"]


def _csharp(deployment: Deployment, path: str) -> list[str]:
    settings = deployment.settings
    lines = ["using System.Collections.Generic;"] if settings.cuda_options() else []
    lines += ["using Microsoft.ML.OnnxRuntime;", "", *_notes(deployment, "//"), "var options = new SessionOptions();"]
    lines.append(f"options.IntraOpNumThreads = {deployment.threads};")
    if deployment.optimization_level in _LEVELS:
        level = _LEVELS[deployment.optimization_level]
        lines.append(f"options.GraphOptimizationLevel = GraphOptimizationLevel.{level};")
    if settings.execution_mode == "parallel":
        lines.append("options.ExecutionMode = ExecutionMode.ORT_PARALLEL;")
        lines.append(f"options.InterOpNumThreads = {settings.inter_op_threads};")
    if not settings.enable_mem_pattern:
        lines.append("options.EnableMemoryPattern = false;")
    if not settings.enable_cpu_mem_arena:
        lines.append("options.EnableCpuMemArena = false;")
    for key, value in deployment.config_entries().items():
        lines.append(f"options.AddSessionConfigEntry({_quoted(key)}, {_quoted(value)});")
    lines += [f"options.RegisterCustomOpLibrary({_quoted(library)});" for library in deployment.custom_ops]
    if deployment.provider == "cuda":
        lines.append("var cuda = new OrtCUDAProviderOptions();")
        if cuda := settings.cuda_options():
            pairs = _pairs(cuda, "[{}] = {}")
            lines.append(f"cuda.UpdateOptions(new Dictionary<string, string> {{ {pairs} }});")
        lines.append("options.AppendExecutionProvider_CUDA(cuda);")
    return [*lines, f"var session = new InferenceSession({_quoted(path)}, options);"]


def _notes(deployment: Deployment, mark: str) -> list[str]:
    """Return comments on what no option of a session can say."""
    notes = []
    if deployment.nchwc_block:
        kind = "AVX-512" if deployment.nchwc_block == 16 else "SSE, AVX or AVX2"
        notes.append(f"{mark} Only for CPUs with blocks of {deployment.nchwc_block} channels ({kind} on x86).")
    if deployment.settings.enable_cuda_graph:
        notes.append(f"{mark} CUDA graphs: bind inputs and outputs to fixed places of the device (IOBinding).")
    if deployment.settings.set_denormal_as_zero:
        notes.append(
            f"{mark} Open this session first: the first one of a process decides for the thread that opens it."
        )
    return notes


def _pairs(values: Mapping[str, str], form: str) -> str:
    return ", ".join(form.format(_quoted(name), _quoted(value)) for name, value in values.items())


def _quoted(text: str) -> str:
    """Return a string literal that reads the same in Python, C++ and C#."""
    return json.dumps(text, ensure_ascii=False)
