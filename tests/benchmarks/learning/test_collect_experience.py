"""The collection of experience: in pieces, resumable, and complete where one network fails."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.learning import collect_experience
from benchmarks.learning.collect_experience import (
    NETWORKS,
    STORE,
    Arguments,
    CollectedSearch,
    Progress,
    collect,
    in_own_process,
    pending,
    search_one,
)
from benchmarks.learning.generated.catalogue import Network
from graph_rewrite.errors import UserError
from graph_rewrite.experience import ExperienceStore
from graph_rewrite.latency.windows import WindowMeter
from tests.agents.regional.exact_timer import ExactTimer
from tests.agents.toys import ExactMeter
from tests.graph_rewrite.experience.rows import made_up

CONSOLE = Console(quiet=True)


def _arguments(folder: Path, **changes: Any) -> Arguments:
    return Arguments(**{"folder": folder, "only": ("encoder/", "dense/"), **changes})


class Searches:
    """Searches that log three labels each."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, arguments: Arguments, network: Network) -> CollectedSearch:
        number = 3 * len(self.asked)
        self.asked.append(network.name)
        store = ExperienceStore(arguments.folder / STORE)
        for n in range(number, number + 3):
            label, parts = made_up(n)
            store.append([label], parts)
        store.close()
        return CollectedSearch(arguments.seconds, 3)


def test_every_network_is_searched_once_and_the_piece_after_goes_on(tmp_path: Path) -> None:
    first, second = Searches(), Searches()
    clock = iter(range(0, 10**6, 20)).__next__
    collect(_arguments(tmp_path, minutes=1.0), first, CONSOLE, clock)
    assert len(first.asked) == 2
    collect(_arguments(tmp_path), second, CONSOLE)
    assert len(second.asked) == 10
    assert len({*first.asked, *second.asked}) == 12
    assert pending(_arguments(tmp_path), Progress(tmp_path / "progress.json")) == []
    assert len(pending(_arguments(tmp_path, seconds=200.0), Progress(tmp_path / "progress.json"))) == 12
    assert len(pending(_arguments(tmp_path, threads=2), Progress(tmp_path / "progress.json"))) == 12


def test_enough_is_enough(tmp_path: Path) -> None:
    searches = Searches()
    assert collect(_arguments(tmp_path, target=7), searches, CONSOLE) == 9
    assert len(searches.asked) == 3


def test_a_network_that_fails_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        name = command[command.index("--one") + 1]
        if name == "dense/0":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        if name == "dense/1":
            return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: no\n")
        return subprocess.CompletedProcess(command, 0, 'loaded\n{"labels": 5}\n', "")

    monkeypatch.setattr(subprocess, "run", run)
    collect(_arguments(tmp_path, only=("dense/",)), in_own_process, CONSOLE)
    done = json.loads((tmp_path / "progress.json").read_text())
    assert done["dense/0 t1"]["error"] == "it took too long"
    assert done["dense/1 t1"]["error"] == "ValueError: no"
    assert done["dense/2 t1"] == {"seconds": 90.0, "labels": 5, "error": ""}


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no network begins with 'x'"):
        pending(_arguments(tmp_path, only=("x",)), Progress(tmp_path / "progress.json"))
    with pytest.raises(UserError, match="there is no network"):
        search_one(_arguments(tmp_path, one="x"))
    (tmp_path / "progress.json").write_text("{")
    with pytest.raises(UserError, match="no JSON"):
        Progress(tmp_path / "progress.json")


def test_one_network_is_searched_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timer = ExactTimer()
    open_problem = collect_experience.open_problem
    monkeypatch.setattr(WindowMeter, "time", lambda self, *arguments, **options: timer.time(*arguments, **options))
    monkeypatch.setattr(
        collect_experience, "open_problem",
        lambda uri, **options: open_problem(uri, **options, meter=lambda model, *_: ExactMeter(model.original)),
    )  # fmt: skip
    assert search_one(_arguments(tmp_path, one="recurrent/0", seconds=3.0)) == 0
    found = json.loads(capsys.readouterr().out)
    store = ExperienceStore(tmp_path / STORE)
    labels = list(store.labels())
    assert 0 < len(labels) <= found["labels"]
    assert {label.family for label in labels} == {"recurrent"}
    assert found["logging_cpu_s"] < 0.5 * found["cpu_s"]
    assert [path.name for path in (tmp_path / NETWORKS).iterdir()] == ["recurrent-0.onnx"]
