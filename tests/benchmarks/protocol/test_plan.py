"""Plans: runs by seed, budgets, controls and peers."""

import json
from pathlib import Path

import pytest

from benchmarks.protocol import tools
from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.plan import CONTROLS, TablePlan, chosen_peers, known_peers
from benchmarks.protocol.searches.runs import DONE, OUTCOME, Run, known_outcome
from graph_rewrite.errors import UserError


def test_every_agent_has_every_seed_and_budget() -> None:
    plan = TablePlan(("a",), ("regional", "greedy@600"), budgets=(60.0, 120.0), seeds=2)
    found = {(run.agent, run.seed, run.budget_s) for run in plan.runs("a")}
    assert found == {
        *(("regional", seed, budget) for seed in (0, 1) for budget in (60.0, 120.0)),
        *(("greedy", seed, 600.0) for seed in (0, 1)),
    }
    assert [run.seed for run in plan.runs("a")] == [0, 0, 0, 1, 1, 1]


def test_sixty_seconds_have_a_hundred_measurements() -> None:
    limits = {run.budget_s: run.measurements for run in TablePlan(("a",), ("greedy",), budgets=(60.0, 600.0)).runs("a")}
    assert limits == {60.0: 100, 600.0: None}


def test_controls_are_runs_of_their_kind_and_a_replay_needs_one_seed() -> None:
    runs = list(TablePlan(("a",), (), tuple(CONTROLS), seeds=3).runs("a"))
    assert {run.kind for run in runs} == {"control"}
    assert {run.agent for run in runs if run.name == "policy-untrained"} == {"ppo:untrained=true"}
    assert [run.seed for run in runs if run.name == "replay"] == [0]
    assert len(runs) == 3 * len(CONTROLS) - 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"agents": ("gready",)}, "no agent gready"),
        ({"controls": ("nothing",)}, "no control nothing"),
        ({"seeds": 0}, "seeds"),
        ({"budgets": (0.0,)}, "budgets"),
    ],
)
def test_what_there_is_not_is_refused_before_any_search(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        TablePlan(("a",), **wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="write a budget of its own"):
        list(TablePlan(("a",), ("greedy@long",)).runs("a"))


def test_a_peer_stands_for_its_variants_and_a_missing_one_stays() -> None:
    def prepare(model: Path, folder: Path, threads: int) -> Contestant:
        return Contestant("any", "m")

    peers = dict.fromkeys(("ort-basic", "ort-all", "openvino"), prepare)
    assert chosen_peers(("ort", "tensorrt"), peers) == ["ort-basic", "ort-all", "tensorrt"]
    assert chosen_peers(("openvino", "all"), peers) == ["openvino", "ort-basic", "ort-all"]
    assert chosen_peers((), peers) == []


def test_a_clone_without_peers_has_none() -> None:
    assert known_peers("benchmarks.no_such_package") == {}


@pytest.mark.parametrize(
    ("threads", "at_once", "groups"),
    [(1, 2, [(3,), (2,)]), (2, 4, [(2, 3), (0, 1)]), (1, 9, [(3,), (2,), (1,), (0,)]), (4, 1, [(0, 1, 2, 3)])],
)
def test_searches_side_by_side_have_cores_of_their_own_the_last_ones_first(
    monkeypatch: pytest.MonkeyPatch, threads: int, at_once: int, groups: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr(tools, "physical_cores", lambda: 4)
    monkeypatch.setattr(tools, "cores_for", lambda count: tuple(range(4 - count, 4)))
    assert tools.core_groups(threads, at_once) == groups


def test_searches_share_a_device_and_a_judgement_has_it_to_itself() -> None:
    on_cpu, on_device = (
        tools.tools_of(TablePlan(("m",), at_once=4, provider=provider), print, 1.0) for provider in ("cpu", "cuda")
    )
    assert on_cpu.at_once == on_cpu.searches_at_once == on_cpu.setting["at_once"]
    assert (on_device.at_once, on_device.searches_at_once) == (1, 4)
    assert len(on_device.setting["cores"]) >= len(on_cpu.setting["cores"])


def test_runs_that_were_kept_before_there_were_providers_are_still_known(tmp_path: Path) -> None:
    on_cpu, on_device = (next(TablePlan(("a",), ("greedy",), provider=name).runs("a")) for name in ("cpu", "cuda"))
    assert on_device.to_json() == {**on_cpu.to_json(), "provider": "cuda"}
    assert [Run.from_json(run.to_json()) for run in (on_cpu, on_device)] == [on_cpu, on_device]
    older = {name: value for name, value in on_cpu.to_json().items() if name != "provider"}
    outcome = {"status": DONE, "run": older, "kept_original": True}
    (tmp_path / OUTCOME).write_text(json.dumps(outcome))
    assert known_outcome(tmp_path, on_cpu) == outcome
    assert known_outcome(tmp_path, on_device) is None
