"""Optimising, explaining and listing work without the optional libraries; what needs one asks for it in a sentence."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graph_rewrite.system.extras import (
    INCLUDES,
    LIBRARIES,
    MissingLibraryError,
    explain_import_error,
    is_installed,
    require,
)
from tests.envs.fakes import write_tower
from tests.repository import ROOT, run_python
from tests.without_extras import refusing

OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
TRAIN, ENV = "pip install 'rewritegym[train]'", "pip install 'rewritegym[env]'"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Environment variables under which no optional library can be imported."""
    return refusing(tmp_path / "hook")


@pytest.mark.parametrize(
    "command", ["--version", "--help", "optimize --help", "train --help", "evaluate --help", "zoo"]
)
def test_commands_that_need_nothing_optional_work(command: str, bare: dict[str, str]) -> None:
    done = run_python("-m", "rewritegym", *command.split(), **bare)
    assert (done.returncode, done.stderr) == (0, "")


def test_hook_refuses_what_is_installed(bare: dict[str, str]) -> None:
    assert importlib.util.find_spec("torch") is not None
    done = run_python("-c", "import torch", **bare)
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'torch'\n")


def test_optimize_writes_a_checked_model(bare: dict[str, str], tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx", 2, 16)
    report = tmp_path / "report.html"
    limits = ["--time-limit", "6s", "--threads", "1"]
    done = run_python("optimize.py", str(model), *limits, "--report", str(report), "--json", **bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verified"]
    assert (tmp_path / "tower.optimized.onnx").is_file()
    assert report.is_file()


def test_inspect_profiles_a_model(bare: dict[str, str], tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx", 2, 16)
    done = run_python("-m", "rewritegym", "inspect", str(model), "--threads", "1", "--json", **bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["profile"]["ms"] > 0.0


def test_rules_are_explained(bare: dict[str, str], tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx", 2, 16)
    done = run_python("-m", "rewritegym", "rules", "explain", str(model), "--json", **bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == str(model)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("train.py --model x.onnx", f"error: Training needs PyTorch and Stable-Baselines3: {TRAIN}"),
        ("evaluate.py --agents ppo", f"error: Agent ppo needs PyTorch and Stable-Baselines3: {TRAIN}"),
        ("evaluate.py --agents mcts", f"error: Agent mcts needs PyTorch and Stable-Baselines3: {TRAIN}"),
        (
            "evaluate.py --agents tensat",
            "error: Agent tensat needs HiGHS and Numba: pip install 'rewritegym[egraph]'",
        ),
        (
            "-m rewritegym zoo resnet18",
            f"error: Exporting a model of the zoo needs PyTorch and ONNX Script: {TRAIN}",
        ),
        (
            "-m rewritegym rules verify --fast --rule commute-add",
            "error: Verifying rules needs z3: pip install 'rewritegym[verify]'",
        ),
    ],
)
def test_a_missing_library_is_asked_for_in_one_sentence(command: str, sentence: str, bare: dict[str, str]) -> None:
    done = run_python(*command.split(), **bare)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence + "\n")


def test_the_environment_needs_nothing_more(bare: dict[str, str], tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx", 2, 16)
    code = f"import gymnasium, rewritegym; gymnasium.make(rewritegym.ENV_ID, model={str(model)!r}, horizon=2).reset()"
    done = run_python("-c", code, **bare)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_search_by_windows_predicts_without_pytorch(bare: dict[str, str]) -> None:
    code = (
        "from agents.regional.prior import prior_of; from graph_rewrite.runtime import Deployment; "
        "print(type(prior_of('effects', Deployment())).__name__)"
    )
    done = run_python("-W", "error", "-c", code, **bare)
    assert (done.stdout, done.stderr) == ("LearntPrior\n", "")


def test_comparison_goes_on_without_plots(tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx", 2, 16)
    arguments = ["--model", str(model), "--agents", "greedy", "--measurements", "3", "--runs", str(tmp_path / "runs")]
    done = run_python("evaluate.py", *arguments, "--no-cost-model", **refusing(tmp_path / "hook", "matplotlib"))
    assert done.returncode == 0, done.stderr
    assert f"No plots: A plot needs Matplotlib: {ENV}" in done.stderr
    assert list(tmp_path.glob("runs/*/greedy-0.onnx"))
    assert not list(tmp_path.glob("runs/*/*.png"))


def test_every_optional_library_belongs_to_the_extra_that_is_named() -> None:
    modules = {"pytorch": "torch", "z3-solver": "z3"}
    declared = {}
    for extra in ("train", "env", "egraph", "verify", "openvino", "bench"):
        for requirement in map(Requirement, OPTIONAL[extra]):
            if requirement.name == "rewritegym":
                assert requirement.extras == INCLUDES[extra]
                continue
            name = canonicalize_name(requirement.name)
            declared[modules.get(name, name.replace("-", "_"))] = extra
    assert declared == {module: library.extra for module, library in LIBRARIES.items()}


def test_development_has_every_extra() -> None:
    [own] = [requirement for requirement in map(Requirement, OPTIONAL["dev"]) if requirement.name == "rewritegym"]
    covered = {extra for name in own.extras for extra in (name, *INCLUDES.get(name, ()))}
    assert covered == OPTIONAL.keys() - {"bench", "dev", "docs"}


def test_the_larger_extra_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_rewrite.system.extras.is_installed", lambda module: False)
    with pytest.raises(MissingLibraryError, match=r"^It needs PyTorch, Matplotlib and z3: pip .*\[train,verify\]'$"):
        require("It", "torch", "matplotlib", "z3")


def test_what_is_installed_is_not_asked_for() -> None:
    assert is_installed("torch")
    require("It", "torch", "z3")


def test_other_modules_that_are_missing_are_bugs() -> None:
    assert explain_import_error(ModuleNotFoundError("no", name="graph_rewrite.nothing")) is None
    assert explain_import_error(ImportError("no")) is None
    sentence = explain_import_error(ModuleNotFoundError("no", name="numba.core"))
    assert sentence == "This command needs Numba: pip install 'rewritegym[egraph]'"
