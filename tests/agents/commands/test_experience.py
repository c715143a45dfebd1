"""`rewritegym experience`: what searches have found out is counted, exported, merged and learnt from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agents.commands.experience import main
from agents.effects.own_means import labels_by_kind, means_here, own_steps_path, remember
from agents.effects.timed_steps import TimedStep
from graph_rewrite.experience import ExperienceStore
from graph_rewrite.experience.means import shape_class
from graph_rewrite.experience.records import Label
from graph_rewrite.latency.device import machine_kind
from graph_rewrite.runtime import Deployment
from tests.agents.regional.logged import logged_search
from tests.graph_rewrite.experience.test_exchange import store_with


def test_stores_are_counted_exported_and_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, file = tmp_path / "x.sqlite3", tmp_path / "x.xz"
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", str(store))
    assert main(["stats"]) == 2
    assert "there is no store of experience yet" in capsys.readouterr().err
    store_with(store, [0, 1, 2])
    assert main(["stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == 3
    assert main(["stats"]) == 0
    assert "3 labels of 1 windows" in capsys.readouterr().out
    assert main(["export", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"] == 3
    assert main(["export", str(file)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    other = ["merge", str(file), "--store", str(tmp_path / "y.sqlite3"), "--json"]
    assert [main(other), main(other)] == [0, 0]
    assert [json.loads(line)["new_labels"] for line in capsys.readouterr().out.splitlines()] == [3, 0]
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", "off")
    assert main(["stats"]) == 2
    assert "name the file" in capsys.readouterr().err


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExperienceStore:
    """The store of a search on this machine, in an empty folder of caches."""
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "cache"))
    store = ExperienceStore(tmp_path / "x.sqlite3")
    logged_search(store, "residual", tmp_path)
    store.close()
    return store


def first_step(store: ExperienceStore) -> Label:
    """The label of the first step that gains or loses most."""
    return max(
        (one for one in store.labels() if one.ok and len(one.steps) == 1), key=lambda one: abs(one.body["saved_s"])
    )


def own_mean(label: Label) -> float:
    families = [step["family"] for step in label.steps]
    found = means_here(Deployment()).forecast(label.rules, families, shape_class(label), 0.0)
    assert found is not None
    assert found.own is not None
    return found.own.mean


def test_what_a_search_found_out_is_used_by_the_next(
    searched: ExperienceStore, capsys: pytest.CaptureFixture[str]
) -> None:
    label = first_step(searched)
    before, saved = own_mean(label), label.share_of_window
    assert main(["learn", str(searched.path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(own_steps_path())
    assert told["labels"] >= told["rewrites"] > 10
    assert abs(own_mean(label) - saved) < abs(before - saved)
    assert main(["learn", str(searched.path)]) == 0
    assert f"{told['rewrites']} rewrites in {told['windows']} windows" in capsys.readouterr().out
    own_steps_path().unlink()
    assert own_mean(label) == before


def test_what_is_learnt_anew_takes_the_place_of_what_searches_left(
    searched: ExperienceStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", str(searched.path), "--json"]) == 0
    before = own_steps_path().read_bytes()
    remember({"another": TimedStep(["1", "A", "...", "... > A", ""], 0.0, -0.5, -0.5, 1.0)}, Deployment())
    assert own_steps_path().read_bytes() != before
    assert main(["learn", str(searched.path)]) == 0
    assert own_steps_path().read_bytes() == before


def test_each_runtime_is_learnt_of_apart(searched: ExperienceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = list(searched.labels())
    in_openvino = {**labels[0].context, "deployment": {**labels[0].context["deployment"], "provider": "openvino"}}
    others = [replace(label, id=f"{label.id} again", context=in_openvino) for label in labels[: len(labels) // 2]]
    monkeypatch.setattr("agents.effects.own_means.labels_of", lambda _: [*labels, *others])
    assert main(["learn", str(searched.path)]) == 0
    steps = json.loads(own_steps_path().read_text())["kinds"]
    assert list(steps) == [machine_kind("cpu"), machine_kind("openvino")]
    assert 0 < len(steps[machine_kind("openvino")]) < len(steps[machine_kind("cpu")])


def test_each_number_of_threads_is_learnt_of_apart_but_not_of_a_device(
    searched: ExperienceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph_rewrite.latency.device.gpu_model", lambda: "NVIDIA H100, 580.1")
    labels, context = list(searched.labels()), next(iter(searched.labels())).context

    def timed(provider: str, threads: int, device: str) -> list[Label]:
        deployment = {**context["deployment"], "provider": provider, "threads": threads}
        told = {**context, "device": device, "deployment": deployment}
        return [replace(one, id=f"{one.id} {provider} {threads}", context=told) for one in labels]

    cpu, gpu = str(context["device"]), f"NVIDIA H100, 580.1 on {context['device']}"
    others = [*timed("cpu", 2, cpu), *timed("cuda", 1, gpu), *timed("cuda", 4, gpu)]
    monkeypatch.setattr("agents.effects.own_means.labels_of", lambda _: [*labels, *others])
    found = labels_by_kind(searched.path)
    assert {kind: len(one) // len(labels) for kind, one in found.items()} == {
        machine_kind("cpu"): 1,
        f"2 threads of {machine_kind('cpu')}": 1,
        "cuda on NVIDIA H100": 2,
    }


def test_there_must_be_something_to_learn_from(
    searched: ExperienceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", str(tmp_path / "nowhere.sqlite3")]) == 2
    assert "there is no such store" in capsys.readouterr().err
    store_with(tmp_path / "other.sqlite3", [0, 1])
    assert main(["learn", str(tmp_path / "other.sqlite3")]) == 2
    assert "no label of this kind of processor" in capsys.readouterr().err
    assert not own_steps_path().exists()
