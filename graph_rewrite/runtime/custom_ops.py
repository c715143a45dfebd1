"""Libraries of custom operators: a check that ONNX Runtime loads them and knows the operators of a model.

Loading a library runs its code. That happens in processes of their own, and only for libraries that the user names.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper

from graph_rewrite.errors import UserError
from graph_rewrite.runtime.leaf_process import describe_exit, leaf_command, run_leaf
from graph_rewrite.runtime.ort_worker.options.providers import PROVIDERS
from graph_rewrite.system.scratch import scratch_folder

HOW = (
    "give the library that holds it: --custom-ops LIBRARY on the command line, custom_ops=[LIBRARY] in Python (with"
    " onnxruntime-extensions the library is onnxruntime_extensions.get_library_path())"
)
"""How to name a library, for messages."""
UNKNOWN = "is not a registered function/op"
"""Part of ONNX Runtime's message about an operator that it does not know."""

_TIMEOUT_S = 60.0
_IR_VERSION = 8


class CustomOperator(NamedTuple):
    """An operator outside of ONNX as a model uses it: with so many operands and results, of a version of its
    domain."""

    domain: str
    op: str
    version: int
    inputs: int
    outputs: int

    def __str__(self) -> str:
        return f"{self.domain}::{self.op}"


def hint(message: str) -> str:
    """Return how to name a library, to append to a message of ONNX Runtime; empty where no operator is unknown."""
    return f"; {HOW}" if UNKNOWN in message else ""


def library_paths(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the absolute paths of libraries, each once.

    Raises:
        UserError: there is no such file.
    """
    found: dict[str, None] = {}
    for path in paths:
        if not Path(path).is_file():
            raise UserError(f"--custom-ops {os.fspath(path)}: there is no such file")
        found[str(Path(path).absolute())] = None
    return tuple(found)


def check_libraries(provider: str, libraries: Sequence[str]) -> None:
    """Check that a provider's runtime takes libraries, where there are any.

    Raises:
        UserError: it takes none.
    """
    if libraries and not PROVIDERS[provider].is_onnxruntime:
        raise UserError(f"--custom-ops: provider {provider!r} takes no libraries; they are for ONNX Runtime")


def missing_operators(libraries: Sequence[str], operators: Iterable[CustomOperator]) -> list[CustomOperator]:
    """Return those of some operators that ONNX Runtime does not know with these libraries. One that cannot be told is
    not among them.

    Raises:
        UserError: a library cannot be loaded.
    """
    wanted = tuple(dict.fromkeys(operators))
    if not libraries and not wanted:
        return []
    states = tuple((path, os.stat(path).st_mtime_ns) for path in libraries)
    known = _known(states, wanted)
    return [operator for operator, held in zip(wanted, known, strict=True) if not held]


@functools.lru_cache(maxsize=16)
def _known(libraries: tuple[tuple[str, int], ...], operators: tuple[CustomOperator, ...]) -> tuple[bool, ...]:
    """Tell for each operator whether ONNX Runtime knows it. The libraries come with the time of their last change."""
    paths = [path for path, _ in libraries]
    with scratch_folder("custom-ops") as folder:
        models = [Path(folder, f"{number}.onnx") for number in range(len(operators))]
        for model, operator in zip(models, operators, strict=True):
            model.write_bytes(_model_of(operator).SerializeToString())
        asked, told = Path(folder, "request"), Path(folder, "findings")
        asked.write_text(json.dumps({"libraries": paths, "models": list(map(str, models))}), "utf-8")
        try:
            code = run_leaf(
                leaf_command("ort_worker.trials.custom_ops", [str(asked), str(told)]), _TIMEOUT_S
            ).returncode
            ended = f"it ended the process that loaded it ({describe_exit(code)})"
        except subprocess.TimeoutExpired:
            ended = f"no end after {_TIMEOUT_S:g} s"
        found = _lines(told)
    for path, finding in zip(paths, [*found, *[None] * len(paths)], strict=False):
        refused = ended if finding is None else finding["refused"]
        if refused:
            raise UserError(f"--custom-ops {path}: no library of operators that ONNX Runtime can load: {refused}")
    answers = [bool(finding["known"]) for finding in found[len(paths) :]]
    return (*answers, *[True] * (len(operators) - len(answers)))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def _model_of(operator: CustomOperator) -> onnx.ModelProto:
    """Return a model of this operator alone. Its types are arbitrary: ONNX Runtime looks for the operator first."""
    inputs = [f"x{number}" for number in range(operator.inputs)]
    outputs = [f"y{number}" for number in range(operator.outputs)]
    graph = helper.make_graph(
        [helper.make_node(operator.op, inputs, outputs, domain=operator.domain)],
        "operator",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(operator.domain, operator.version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)
