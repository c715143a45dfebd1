"""The contracts of import-linter in pyproject.toml: they hold, and they refuse what they are meant to refuse."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.repository import PACKAGES, ROOT, run_python

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
LAYERED = [contract for contract in CONTRACTS if "containers" in contract]
WORKER = "graph_rewrite/runtime/ort_worker"


def layers(contract: dict[str, Any]) -> list[list[str]]:
    """Return the members of a contract's layers, the highest layer first."""
    return [re.split(r" *[|:] *", layer) for layer in contract["layers"]]


def broken(tree: Path) -> set[str]:
    """Return the names of the contracts that a tree breaks."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = run_python("-c", code, cwd=tree)
    found = set(re.findall(r"^(.+) BROKEN$", done.stdout, re.MULTILINE))
    assert done.returncode == bool(found), done.stdout + done.stderr
    return found


def write(tree: Path, module: str, text: str = "") -> None:
    """Write a module, with the packages in which it lies."""
    file = tree / module
    for folder in list(file.relative_to(tree).parents)[:-1]:
        (tree / folder).mkdir(parents=True, exist_ok=True)
        (tree / folder / "__init__.py").touch()
    file.write_text(text + "\n", encoding="utf-8")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with the same contracts over empty packages."""
    for package in (*PACKAGES, WORKER):
        write(tmp_path, f"{package}/__init__.py")
    for contract in LAYERED:
        for container in contract["containers"]:
            for name in (name for layer in layers(contract) for name in layer):
                write(tmp_path, f"{container.replace('.', '/')}/{name}/__init__.py")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_hold() -> None:
    assert broken(ROOT) == set()


def test_hold_over_empty_packages(tree: Path) -> None:
    assert broken(tree) == set()


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("graph_rewrite/ir/a.py", "import envs", "imports point one way"),
        ("graph_rewrite/ir/a.py", "import gymnasium", "graph_rewrite knows nothing of reinforcement learning"),
        (
            "graph_rewrite/ir/a.py",
            "from stable_baselines3.common import logger",
            "graph_rewrite knows nothing of reinforcement learning",
        ),
        ("graph_rewrite/ir/a.py", "def f():\n    import torch.nn", "PyTorch only in agents and graph_rewrite.zoo"),
        ("envs/features/a.py", "import agents", "imports point one way"),
        ("envs/features/a.py", "import torch", "PyTorch only in agents and graph_rewrite.zoo"),
        ("envs/features/a.py", "import sb3_contrib", "envs know no learning library"),
        ("agents/core/a.py", "import rewritegym", "imports point one way"),
        ("rewritegym/a.py", "import torch", "PyTorch only in agents and graph_rewrite.zoo"),
        (f"{WORKER}/a.py", "import onnx", "the measurement worker starts with numpy and onnxruntime alone"),
        (f"{WORKER}/a.py", "import torch", "the measurement worker starts with numpy and onnxruntime alone"),
        (
            f"{WORKER}/a.py",
            "from graph_rewrite.errors import UserError",
            "the measurement worker starts with numpy and onnxruntime alone",
        ),
        (
            f"{WORKER}/a.py",
            "from ..client import Client",
            "the measurement worker starts with numpy and onnxruntime alone",
        ),
    ],
)
def test_refuse(tree: Path, module: str, line: str, contract: str) -> None:
    write(tree, "graph_rewrite/runtime/client.py")
    write(tree, module, line)
    assert contract in broken(tree)


@pytest.mark.parametrize("contract", LAYERED, ids=lambda contract: contract["name"])
def test_layers_refuse_imports_upwards(tree: Path, contract: dict[str, Any]) -> None:
    [container] = contract["containers"]
    (upper, *_), (lower, *_) = layers(contract)[-2:]
    write(tree, f"{container.replace('.', '/')}/{lower}/a.py", f"import {container}.{upper}")
    assert contract["name"] in broken(tree)


@pytest.mark.parametrize(
    "contract", [each for each in LAYERED if each.get("exhaustive")], ids=lambda contract: contract["name"]
)
def test_exhaustive_layers_refuse_packages_without_one(tree: Path, contract: dict[str, Any]) -> None:
    write(tree, f"{contract['containers'][0].replace('.', '/')}/unheard_of/__init__.py")
    assert broken(tree) == {contract["name"]}


def test_members_of_a_package_may_not_need_each_other_in_a_circle(tree: Path) -> None:
    write(tree, "benchmarks/a.py", "import benchmarks.b")
    write(tree, "benchmarks/b.py", "def f():\n    import benchmarks.c")
    write(tree, "benchmarks/c.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import benchmarks.a")
    assert broken(tree) == {"members of a package do not need each other in a circle"}


def test_allow_torch_in_agents_and_zoo_and_what_uses_them(tree: Path) -> None:
    write(tree, "graph_rewrite/zoo/architectures/bert.py", "import torch")
    write(tree, "graph_rewrite/task/uri.py", "import graph_rewrite.zoo.architectures.bert")
    write(tree, "agents/ppo/policy.py", "import torch\nimport sb3_contrib\nimport envs")
    write(tree, "rewritegym/cli.py", "import agents.ppo.policy")
    assert broken(tree) == set()
