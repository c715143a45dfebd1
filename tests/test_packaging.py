"""Public names, commands of the Makefile, and declared dependencies."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import rewritegym
from tests.repository import PACKAGES, ROOT, run_python

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
REQUIREMENTS = [Requirement(line) for line in PROJECT["dependencies"]]
OPTIONAL = {
    extra: [requirement for requirement in map(Requirement, lines) if requirement.name != PROJECT["name"]]
    for extra, lines in PROJECT["optional-dependencies"].items()
}
DEVELOPMENT = OPTIONAL["dev"]
SHIPPED = [*REQUIREMENTS, *(r for extra, listed in OPTIONAL.items() if extra not in ("dev", "docs") for r in listed)]
"""What the files of the distribution may import."""

ENVIRONMENTS = [
    rewritegym.ENV_ID, rewritegym.EGRAPH_ENV_ID, rewritegym.WINDOW_ENV_ID, rewritegym.WINDOW_TABLE_ENV_ID,
]  # fmt: skip


class TestPublicNames:
    def test_import_loads_neither_torch_nor_onnxruntime(self) -> None:
        heavy = ("torch", "onnxruntime", "onnx", "stable_baselines3", "matplotlib", "graph_rewrite", "envs", "agents",
                 "gymnasium", "numpy")  # fmt: skip
        code = f"import sys, rewritegym; print([name for name in {heavy} if name in sys.modules])"
        done = run_python("-c", code)
        assert done.stdout.strip() == "[]", done.stderr

    @pytest.mark.parametrize("name", rewritegym.__all__)
    def test_every_public_name_resolves_and_is_listed(self, name: str) -> None:
        assert getattr(rewritegym, name) is getattr(rewritegym, name)
        assert name in dir(rewritegym)

    def test_unknown_name_is_an_attribute_error_that_lists_the_names(self) -> None:
        with pytest.raises(AttributeError, match=r"no attribute 'sesion'.*session"):
            _ = rewritegym.sesion  # type: ignore[attr-defined]

    def test_environment_is_registered(self) -> None:
        spec = gymnasium.spec("rewritegym/GraphRewrite-v0")
        assert spec.entry_point == "envs.graph_rewrite.env:GraphRewriteEnv"
        assert gymnasium.envs.registration.load_env_creator(spec.entry_point) is rewritegym.GraphRewriteEnv

    @pytest.mark.parametrize("order", ["gymnasium, rewritegym", "rewritegym, gymnasium"])
    def test_environments_are_registered_whichever_is_imported_first(self, order: str) -> None:
        code = f"import {order}; print(*(name for name in gymnasium.registry if name.startswith('rewritegym/')))"
        done = run_python("-c", code)
        assert done.stdout.split() == ENVIRONMENTS, done.stderr

    def test_gymnasium_finds_the_environment_by_the_name_of_the_module(self) -> None:
        code = "import gymnasium; gymnasium.make('rewritegym:rewritegym/GraphRewrite-v0', nonsense=1)"
        done = run_python("-c", code)
        assert "nonsense" in done.stderr
        assert "NameNotFound" not in done.stderr

    @pytest.mark.parametrize("option", ["--version", "--help"])
    def test_script_starts_without_what_it_does_not_need(self, option: str) -> None:
        code = (
            "import sys; from rewritegym.cli import main; main(sys.argv[1:]); "
            "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
        )
        loaded = set(run_python("-c", code, option).stderr.split())
        assert {"rewritegym", "graph_rewrite"} <= loaded
        heavy = {"numpy", "onnx", "onnx_ir", "onnxruntime", "gymnasium", "rich", "tyro", "sympy", "yaml"}
        assert heavy <= importlib.metadata.packages_distributions().keys()
        assert loaded.isdisjoint(heavy)


class TestCommands:
    def test_ci_runs_the_test_command_of_the_readme(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        command = re.search(r"^```\n(make test.*)\n```$", readme, re.MULTILINE)
        assert command is not None
        script = ROOT / ".ci" / "run"
        assert os.access(script, os.X_OK)
        last_line = script.read_text(encoding="utf-8").strip().splitlines()[-1]
        assert last_line == f"exec {command[1]} </dev/null"

    @pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
    def test_make_without_a_target_lists_every_target(self) -> None:
        phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert phony is not None
        listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for target in phony[1].split():
            assert re.search(rf"^  {target}\s+\S", listed, re.MULTILINE), target

    @pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
    @pytest.mark.parametrize("target", ["train", "evaluate"])
    def test_make_hands_model_and_arguments_on(self, target: str) -> None:
        command = ["make", "--dry-run", target, "MODEL=squeezenet", "ARGS=--seed 1"]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert f"{target}.py --model squeezenet --seed 1" in printed


class TestDependencies:
    @pytest.fixture(scope="class")
    @staticmethod
    def pins() -> dict[str, Version]:
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        pins = {}
        for line in (line for line in lines if line and not line.startswith("#")):
            exact = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;*]+)", line)
            assert exact is not None, f"constraints.txt: {line!r} is no exact version"
            pins[canonicalize_name(exact[1])] = Version(exact[2])
        return pins

    @pytest.mark.parametrize("requirement", [*SHIPPED, *DEVELOPMENT], ids=str)
    def test_pin_lies_in_the_range(self, pins: dict[str, Version], requirement: Requirement) -> None:
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier

    def test_pins_are_not_tied_to_one_build(self, pins: dict[str, Version]) -> None:
        assert [name for name, version in pins.items() if version.local] == []

    @pytest.mark.parametrize(
        ("system", "machine", "expected"),
        [
            ("linux", "x86_64", "onnxruntime-gpu"),
            ("win32", "AMD64", "onnxruntime-gpu"),
            ("linux", "aarch64", "onnxruntime"),
            ("win32", "ARM64", "onnxruntime"),
            ("darwin", "arm64", "onnxruntime"),
            ("darwin", "x86_64", "onnxruntime"),
        ],
    )
    def test_every_platform_gets_one_onnxruntime(self, system: str, machine: str, expected: str) -> None:
        platform = {"sys_platform": system, "platform_machine": machine}
        chosen = [
            requirement.name
            for requirement in REQUIREMENTS
            if requirement.name.startswith("onnxruntime")
            and (requirement.marker is None or requirement.marker.evaluate(platform))
        ]
        assert chosen == [expected]

    def test_every_import_is_a_declared_dependency(self) -> None:
        declared = {canonicalize_name(requirement.name) for requirement in SHIPPED}
        providers = importlib.metadata.packages_distributions()
        undeclared = {
            f"{path.relative_to(ROOT)} imports {module}"
            for path in shipped_files()
            for module in imported_modules(path)
            # Of a module that is not installed, such as those of the extra `bench`, the name is the distribution's.
            if declared.isdisjoint(canonicalize_name(name) for name in providers.get(module, (module,)))
        }
        assert not undeclared


def shipped_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")
    yield from (path for path in ROOT.glob("*.py") if path.name != "setup.py")


def imported_modules(path: Path) -> set[str]:
    """Return the top-level names that a file imports anywhere, less the standard library's and our own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    top = {name.split(".")[0] for name in found}
    return top - sys.stdlib_module_names - set(PACKAGES)
