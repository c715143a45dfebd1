"""The contracts of import-linter in pyproject.toml: they hold, and they refuse what they are meant to refuse."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repository import PACKAGES, ROOT, run_python


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    return run_python("-c", code, cwd=tree)


def test_hold() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder with the same contracts over empty packages."""
    for package in (*PACKAGES, "graph_rewrite/zoo"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("graph_rewrite/a.py", "import envs"),
        ("graph_rewrite/a.py", "import gymnasium"),
        ("graph_rewrite/a.py", "from stable_baselines3.common import logger"),
        ("graph_rewrite/a.py", "def f():\n    import torch.nn"),
        ("envs/a.py", "import agents"),
        ("envs/a.py", "import torch"),
        ("envs/a.py", "import sb3_contrib"),
        ("agents/a.py", "import rewritegym"),
        ("rewritegym/a.py", "import torch"),
    ],
)
def test_refuse(tree: Path, module: str, line: str) -> None:
    (tree / module).write_text(line + "\n", encoding="utf-8")
    done = lint(tree)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


def test_allow_torch_in_agents_and_zoo_and_what_uses_them(tree: Path) -> None:
    (tree / "graph_rewrite/zoo/architectures").mkdir()
    (tree / "graph_rewrite/zoo/architectures/__init__.py").touch()
    (tree / "graph_rewrite/zoo/architectures/bert.py").write_text("import torch\n", encoding="utf-8")
    (tree / "graph_rewrite/uri.py").write_text("import graph_rewrite.zoo.architectures.bert\n", encoding="utf-8")
    (tree / "agents/ppo.py").write_text("import torch\nimport sb3_contrib\nimport envs\n", encoding="utf-8")
    (tree / "rewritegym/cli.py").write_text("import agents.ppo\n", encoding="utf-8")
    done = lint(tree)
    assert done.returncode == 0, done.stdout + done.stderr
