"""Code that opens a model as a deployment says, in plain ONNX Runtime: Python, C++ and C#."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..deployment import Deployment

_LEVELS = {"none": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
"""Graph optimisation levels that are not the default."""


@dataclass(frozen=True)
class _Language:
    """The way in which a language says the settings of a deployment."""

    mark: str
    """What a comment begins with."""
    head: tuple[str, ...]
    options: tuple[str, ...]
    """Lines that make the options."""
    forms: Mapping[str, str]
    """The line for a setting, by its name in `_settings`."""
    provider: Callable[[Deployment], list[str]]
    """Returns the lines that choose the provider."""
    session: Callable[[Deployment, str], str]
    """Returns the line that opens a model file."""


def onnx_runtime_code(deployment: Deployment, model: str) -> dict[str, str]:
    """Return code that opens the model file `model` with plain ONNX Runtime as `deployment` says.

    Each text makes an object `session` and sets only what differs from ONNX Runtime's defaults, and the number of
    threads.

    Returns:
        The code by language: `python`, `cpp` and `csharp`.
    """
    settings, notes = list(_settings(deployment)), _notes(deployment)
    texts = {}
    for name, language in _LANGUAGES.items():
        lines = [*language.head, "", *(f"{language.mark} {note}" for note in notes), *language.options]
        lines += [language.forms[setting].format(*values) for setting, *values in settings]
        lines += [*language.provider(deployment), language.session(deployment, model)]
        if name == "csharp" and deployment.settings.cuda_options():
            lines.insert(0, "using System.Collections.Generic;")
        texts[name] = "\n".join(lines) + "\n"
    return texts


def _settings(deployment: Deployment) -> Iterator[tuple[str, ...]]:
    """Yield each setting to be made with its values, in the order of the code; texts are quoted."""
    settings = deployment.settings
    yield "threads", str(deployment.threads)
    if deployment.optimization_level in _LEVELS:
        yield "level", _LEVELS[deployment.optimization_level]
    if settings.execution_mode == "parallel":
        yield ("parallel",)
        yield "inter_op_threads", str(settings.inter_op_threads)
    if not settings.enable_mem_pattern:
        yield ("no_mem_pattern",)
    if not settings.enable_cpu_mem_arena:
        yield ("no_arena",)
    for key, value in deployment.config_entries().items():
        yield "entry", _quoted(key), _quoted(value)
    for library in deployment.custom_ops:
        yield "library", _quoted(library)


def _notes(deployment: Deployment) -> list[str]:
    """Return what no option of a session can say."""
    notes = []
    if deployment.nchwc_block:
        kind = "AVX-512" if deployment.nchwc_block == 16 else "SSE, AVX or AVX2"
        notes.append(f"Only for CPUs with blocks of {deployment.nchwc_block} channels ({kind} on x86).")
    if deployment.settings.enable_cuda_graph:
        notes.append("CUDA graphs: bind inputs and outputs to fixed places of the device (IOBinding) for every run;")
        notes.append("any other run may answer for the inputs of an earlier one.")
    if deployment.settings.set_denormal_as_zero:
        notes.append("Open this session first, in the thread that runs it: the first one of a process decides for the")
        notes.append("thread that opens it, which then computes without denormals whatever it does.")
    return notes


def _python_provider(deployment: Deployment) -> list[str]:
    if deployment.provider != "cuda":
        return []
    return ["ort.preload_dlls()  # finds CUDA and cuDNN where they are installed as Python packages"]


def _python_session(deployment: Deployment, path: str) -> str:
    providers = ", ".join(
        _quoted(entry) if isinstance(entry, str) else f"({_quoted(entry[0])}, {json.dumps(entry[1])})"
        for entry in deployment.providers()
    )
    return f"session = ort.InferenceSession({_quoted(path)}, options, providers=[{providers}])"


def _cpp_provider(deployment: Deployment) -> list[str]:
    if deployment.provider != "cuda":
        return []
    cuda = deployment.settings.cuda_options()
    update = [f"cuda.Update({{{_pairs(cuda, '{{{}, {}}}')}}});"] if cuda else []
    return ["Ort::CUDAProviderOptions cuda;", *update, "options.AppendExecutionProvider_CUDA_V2(*cuda);"]


def _csharp_provider(deployment: Deployment) -> list[str]:
    if deployment.provider != "cuda":
        return []
    pairs = _pairs(deployment.settings.cuda_options(), "[{}] = {}")
    update = [f"cuda.UpdateOptions(new Dictionary<string, string> {{ {pairs} }});"] if pairs else []
    return ["var cuda = new OrtCUDAProviderOptions();", *update, "options.AppendExecutionProvider_CUDA(cuda);"]


def _pairs(values: Mapping[str, str], form: str) -> str:
    return ", ".join(form.format(_quoted(name), _quoted(value)) for name, value in values.items())


def _quoted(text: str) -> str:
    """Return a string literal that reads the same in Python, C++ and C#."""
    return json.dumps(text, ensure_ascii=False)


_LANGUAGES = {
    "python": _Language(
        mark="#",
        head=("import onnxruntime as ort",),
        options=("options = ort.SessionOptions()",),
        forms={
            "threads": "options.intra_op_num_threads = {}",
            "level": "options.graph_optimization_level = ort.GraphOptimizationLevel.{}",
            "parallel": "options.execution_mode = ort.ExecutionMode.ORT_PARALLEL",
            "inter_op_threads": "options.inter_op_num_threads = {}",
            "no_mem_pattern": "options.enable_mem_pattern = False",
            "no_arena": "options.enable_cpu_mem_arena = False",
            "entry": "options.add_session_config_entry({}, {})",
            "library": "options.register_custom_ops_library({})",
        },
        provider=_python_provider,
        session=_python_session,
    ),
    "cpp": _Language(
        mark="//",
        head=("#include <onnxruntime_cxx_api.h>",),
        options=("Ort::Env env(ORT_LOGGING_LEVEL_WARNING);", "Ort::SessionOptions options;"),
        forms={
            "threads": "options.SetIntraOpNumThreads({});",
            "level": "options.SetGraphOptimizationLevel(GraphOptimizationLevel::{});",
            "parallel": "options.SetExecutionMode(ExecutionMode::ORT_PARALLEL);",
            "inter_op_threads": "options.SetInterOpNumThreads({});",
            "no_mem_pattern": "options.DisableMemPattern();",
            "no_arena": "options.DisableCpuMemArena();",
            "entry": "options.AddConfigEntry({}, {});",
            "library": "options.RegisterCustomOpsLibrary(ORT_TSTR({}));",
        },
        provider=_cpp_provider,
        session=lambda _, path: f"Ort::Session session(env, ORT_TSTR({_quoted(path)}), options);",
    ),
    "csharp": _Language(
        mark="//",
        head=("using Microsoft.ML.OnnxRuntime;",),
        options=("var options = new SessionOptions();",),
        forms={
            "threads": "options.IntraOpNumThreads = {};",
            "level": "options.GraphOptimizationLevel = GraphOptimizationLevel.{};",
            "parallel": "options.ExecutionMode = ExecutionMode.ORT_PARALLEL;",
            "inter_op_threads": "options.InterOpNumThreads = {};",
            "no_mem_pattern": "options.EnableMemoryPattern = false;",
            "no_arena": "options.EnableCpuMemArena = false;",
            "entry": "options.AddSessionConfigEntry({}, {});",
            "library": "options.RegisterCustomOpLibrary({});",
        },
        provider=_csharp_provider,
        session=lambda _, path: f"var session = new InferenceSession({_quoted(path)}, options);",
    ),
}
