"""Files for people who find the project: workflow, issue forms, citation, container. What they name exists."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from rewritegym import __version__, cli
from tests.repository import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
GITHUB = [*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile as (word, rest), lines that go on joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for line in joined.splitlines() if line for word, _, rest in [line.partition(" ")]]


def copied() -> Iterator[str]:
    """Yield what the Dockerfile copies out of the repository."""
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            yield from rest.split()[:-1]


def ignored(name: str) -> bool:
    """Tell whether .dockerignore leaves out a file or folder at the top: the last line that fits decides."""
    outcome = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#") and fnmatch(name, line.removeprefix("!")):
            outcome = not line.startswith("!")
    return outcome


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_is_yaml(path: Path) -> None:
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


class TestWorkflow:
    @pytest.fixture
    @staticmethod
    def job() -> dict[str, Any]:
        # As BaseLoader reads it: `on` is no truth value, and 3.10 no number.
        text = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
        workflow = yaml.load(text, Loader=yaml.BaseLoader)
        assert workflow["on"].keys() == {"push", "pull_request"}
        assert workflow["permissions"] == {"contents": "read"}
        [job] = workflow["jobs"].values()
        return dict(job)

    def test_runs_make_test_on_linux(self, job: dict[str, Any]) -> None:
        assert job["runs-on"].startswith("ubuntu-")
        runs = [step["run"] for step in job["steps"] if "run" in step]
        assert runs == ["make test PYTHON=python"]
        assert re.search(r"^test:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    def test_has_every_supported_python_and_caches_by_files_that_exist(self, job: dict[str, Any]) -> None:
        versions = job["strategy"]["matrix"]["python"]
        assert versions == ["3.11", "3.12"]
        assert all(version in SpecifierSet(PROJECT["requires-python"]) for version in versions)
        [setup] = [step["with"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
        assert setup["cache"] == "pip"
        assert all((ROOT / name).is_file() for name in setup["cache-dependency-path"].split())


class TestNightly:
    @pytest.fixture
    @staticmethod
    def workflow() -> dict[str, Any]:
        text = (ROOT / ".github/workflows/nightly.yml").read_text(encoding="utf-8")
        return dict(yaml.load(text, Loader=yaml.BaseLoader))

    def test_runs_by_itself_and_on_demand_and_may_only_read(self, workflow: dict[str, Any]) -> None:
        assert workflow["on"].keys() == {"schedule", "workflow_dispatch"}
        assert workflow["permissions"] == {"contents": "read"}

    def test_runs_every_target_that_takes_too_long_for_each_change(self, workflow: dict[str, Any]) -> None:
        [job] = workflow["jobs"].values()
        targets = job["strategy"]["matrix"]["target"]
        assert set(targets) == {"fuzz", "fuzz-optimisations", "kill", "node-cases", "large-model", "mutants", "replay"}
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}: setup ##", makefile, re.MULTILINE) for target in targets)
        [run] = [step["run"] for step in job["steps"] if "run" in step]
        assert run == "make ${{ matrix.target }} PYTHON=python"


def test_actions_run_on_a_node_that_github_still_has() -> None:
    """Runners have had no Node 20 since September 2026; these are the first versions for Node 24."""
    first = {"actions/checkout": 5, "actions/setup-python": 6, "actions/upload-artifact": 6}
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")]
    used = [found for text in texts for found in re.findall(r"uses: (\S+)@v(\d+)", text)]
    assert used
    assert all(int(version) >= first[action] for action, version in used)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_form_has_what_github_asks_for(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form.keys() == {"name", "description", "labels", "body"}
    identifiers = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert identifiers
    assert len(set(identifiers)) == len(identifiers)
    for part in form["body"]:
        assert part["type"] in {"markdown", "input", "textarea"}
        assert part["attributes"]["value" if part["type"] == "markdown" else "label"]
    for command in re.findall(r"rewritegym ([a-z]+)", path.read_text(encoding="utf-8")):
        assert command in cli.COMMANDS


def test_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]


class TestContainer:
    def test_copies_what_the_wheel_is_built_from(self) -> None:
        needed = {
            *PACKAGES,
            "checkpoints",
            "configs",
            "known_results",
            "pyproject.toml",
            "setup.py",
            "MANIFEST.in",
            "README.md",
            "LICENSE",
        }
        assert needed <= set(copied())

    def test_what_is_copied_exists_and_is_sent_to_the_builder(self) -> None:
        for name in copied():
            assert (ROOT / name).exists(), name
            assert not ignored(name), name

    @pytest.mark.parametrize("name", [".git", ".venv", "runs", "tests", "docs", "model.onnx"])
    def test_nothing_else_is_sent(self, name: str) -> None:
        assert ignored(name)

    def test_runs_the_script_as_an_ordinary_user_in_the_mounted_folder(self) -> None:
        told = dict(instructions())  # the last of each kind counts
        [script] = json.loads(told["ENTRYPOINT"])
        assert script in PROJECT["scripts"]
        assert told["USER"] not in ("root", "0")
        assert told["WORKDIR"] == "/work"

    def test_python_is_a_supported_one(self) -> None:
        images = [rest for word, rest in instructions() if word == "FROM"]
        versions = [re.match(r"python:(\d+\.\d+)-slim", image) for image in images]
        assert versions
        for version in versions:
            assert version is not None
            assert version[1] in SpecifierSet(PROJECT["requires-python"])

    def test_installs_no_extra(self) -> None:
        [install] = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
        assert "-c /tmp/constraints.txt" in install
        assert "[" not in install


def test_make_passes_on_a_path_with_spaces() -> None:
    line = ["make", "-n", "optimize", "FILE=my models/a model.onnx"]
    shown = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert '"my models/a model.onnx"' in shown
