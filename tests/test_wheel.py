"""The wheel: its files, its metadata, and a command that runs from an installation elsewhere."""

import json
import shutil
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import rewritegym
from agents.core.config import load_config
from graph_rewrite.rules import rule_set
from tests.envs.fakes import write_tower
from tests.repository import PACKAGES, ROOT, run, run_python
from tests.without_extras import refusing

DATA = ("checkpoints", "configs", "known_results")
"""Folders beside the packages that the wheel ships below agents/."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of this tree, from a copy so that the tree stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (*PACKAGES, *DATA):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    code = f"from setuptools.build_meta import build_wheel; print(build_wheel({str(folder)!r}))"
    done = run_python("-c", code, cwd=source)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_holds_every_module_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if name.endswith(".py")}
    assert shipped == {
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }


def test_holds_the_data_of_the_packages_but_no_pages_or_results_of_benchmarks(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and path.suffix not in (".py", ".md")
        and path.parent.name != "__pycache__"
        and ROOT / "benchmarks" / "results" not in path.parents
    }
    with zipfile.ZipFile(wheel) as archive:
        data = [name for name in archive.namelist() if name.split("/")[0] in PACKAGES and not name.endswith(".py")]
    assert {name for name in data if not name.startswith(tuple(f"agents/{folder}/" for folder in DATA))} == expected


def test_finds_its_configurations_checkpoints_and_results(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = "from agents.core import paths as p; print(p.checkpoints(), p.configs(), p.known_results(), sep='\\n')"
    done = run_python("-c", code, cwd=tmp_path, PYTHONPATH=str(site))
    assert done.stdout.splitlines() == [str(site / "agents" / name) for name in DATA]
    for name in DATA:
        expected = {path.relative_to(ROOT / name) for path in (ROOT / name).rglob("*") if path.is_file()}
        found = {path.relative_to(site / "agents" / name) for path in (site / "agents" / name).rglob("*")}
        assert expected <= found


def test_names_script_version_and_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "rewritegym = rewritegym.cli:main" in entry_points
    assert f"\nVersion: {rewritegym.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel, and with the dependencies of the one that runs the tests."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    installed = run_python("-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    assert installed.returncode == 0, installed.stderr
    # A path in a .pth file adds the packages there, but not what the .pth files beside them add, such as an editable
    # install of this repository.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return environment


@pytest.mark.slow
def test_optimises_a_model_where_it_is_installed_outside_the_repository(environment: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    limits = ["--seconds", "5", "--measurements", "3", "--applications", "20"]
    command = [str(environment / "bin" / "rewritegym"), "evaluate", "--model", "bert-tiny", "--agents", "greedy"]
    done = run([*command, *limits, "--json"], elsewhere)
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert result["verified"]
    assert list(elsewhere.glob("runs/*/greedy-0.onnx"))
    python = environment / "bin" / "python"
    origin = run([str(python), "-c", "import graph_rewrite; print(graph_rewrite.__file__)"], elsewhere)
    assert Path(origin.stdout.strip()).is_relative_to(environment)


def test_optimises_without_the_optional_libraries(environment: Path, tmp_path: Path) -> None:
    write_tower(tmp_path / "tower.onnx", 2, 16)
    command = [
        str(environment / "bin" / "rewritegym"),
        "optimize",
        "tower.onnx",
        "--time-limit",
        "6s",
        "--threads",
        "1",
    ]
    done = run([*command, "--json"], tmp_path, **refusing(tmp_path / "hook"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verified"]
    assert (tmp_path / "tower.optimized.onnx").is_file()


def test_finds_configurations_and_rules_without_the_optional_libraries(environment: Path, tmp_path: Path) -> None:
    code = (
        "from agents.core.config import load_config; from graph_rewrite.rules import rule_set; "
        "print(load_config('bert').model, len(rule_set('all')))"
    )
    done = run([str(environment / "bin" / "python"), "-c", code], tmp_path, **refusing(tmp_path / "hook"))
    config = load_config("bert")
    assert done.stdout.strip() == f"{config.model} {len(rule_set('all'))}", done.stderr
