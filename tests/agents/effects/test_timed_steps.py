"""Steps that a search times, which later searches on the machine begin with."""

from __future__ import annotations

import json
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.effects import own_means
from agents.effects.means_file import SHIPPED, load_means
from agents.effects.own_means import means_here, own_steps_path, remember, save_own
from agents.effects.step_means import MOST_LOST, ChainStep
from agents.effects.timed_steps import SearchedSteps, TimedStep, means_of_timed
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from graph_rewrite.experience import ExperienceLog
from graph_rewrite.latency.device import machine_kind, processor_kind
from graph_rewrite.runtime import Deployment
from tests.agents.regional.exact_timer import BUDGET, ExactTimer
from tests.agents.toys import chain_problem

SHARES = st.one_of(st.none(), st.floats(-2.0, 0.9))


def step(*rules: str, window: str = "a window") -> ChainStep:
    return ChainStep(rules, ["winograd"] * len(rules), "Conv 3", 0.1, window)


@given(st.lists(SHARES, min_size=1, max_size=5))
def test_a_step_counts_with_the_best_chain_that_goes_on_from_it(shares: list[float | None]) -> None:
    """As in a table of windows: what is left of a chain that cannot be run is never timed."""
    searched, previous, known = SearchedSteps(), None, list[float]()
    for depth, share in enumerate(shares):
        previous = searched.add(step(*["A"] * (depth + 1)), share, 0.02, previous)
        if share is None:
            break
        known.append(share)
    before = [0.0, *known]
    for depth, one in enumerate(searched.timed.values()):
        gains = [share - before[depth] for share in known[depth:]] or [-MOST_LOST]
        assert one.own == pytest.approx(max(gains[0], -MOST_LOST))
        assert one.best == pytest.approx(max(*gains, -MOST_LOST))


def test_imprecise_timings_count_little() -> None:
    searched = SearchedSteps()
    weights = [searched.add(step("A", window=str(half)), -0.2, half, None).timed.weight for half in (0.0, 0.1, 1.0)]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == 1.0
    later = searched.add(step("A", "B"), 0.1, 0.0, searched.add(step("A"), 0.1, 0.1, None))
    assert later.timed.weight == weights[1]  # what the chain before it saves is as imprecise


def test_each_window_has_its_own_steps() -> None:
    searched = SearchedSteps()
    for window in ("a", "b", "a"):
        searched.add(step("A", window=window), 0.1, 0.0, None)
    assert len(searched.timed) == 2
    names = [one.names for one in searched.timed.values()]
    assert names[0][0] != names[1][0]
    assert names[0][1:] == names[1][1:]


STEP = TimedStep(step("Winograd2x2").names, 0.1, -0.2, -0.1, 0.9)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of caches."""
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def winograd(threads: int = 1) -> float:
    found = means_here(Deployment(threads=threads)).forecast(["Winograd2x2"], ["winograd"], "Conv 3", 0.1)
    assert found is not None
    return found.mean


def test_later_searches_begin_with_what_was_timed(cache: Path) -> None:
    before = winograd()
    remember({}, Deployment())
    assert not own_steps_path().exists()
    remember({"a": STEP}, Deployment())
    once = winograd()
    remember({"a": STEP}, Deployment())  # the same timing again tells nothing new
    assert winograd() == once
    remember({"b": STEP, "c": STEP}, Deployment())
    assert winograd() < once < before
    base = load_means(SHIPPED, processor_kind())
    assert means_here(Deployment()) == base.extended(means_of_timed([STEP] * 3, base))


def test_searches_that_end_together_lose_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = own_means._own

    def slowly(path: Path) -> dict[str, dict[str, TimedStep]]:
        found = read(path)
        time.sleep(0.05)
        return found

    monkeypatch.setattr(own_means, "_own", slowly)
    threads = [threading.Thread(target=remember, args=({name: STEP}, Deployment())) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(json.loads(own_steps_path().read_text())["kinds"][processor_kind()]) == {"a", "b", "c"}


def test_other_processors_steps_are_kept_apart(cache: Path) -> None:
    before = winograd()
    save_own({"a": STEP}, "another processor")
    assert winograd() == before
    remember({"b": STEP}, Deployment())
    kinds = json.loads(own_steps_path().read_text())["kinds"]
    assert {kind: list(steps) for kind, steps in kinds.items()} == {"another processor": ["a"], processor_kind(): ["b"]}
    save_own({"c": STEP}, processor_kind(), anew=True)
    assert list(json.loads(own_steps_path().read_text())["kinds"][processor_kind()]) == ["c"]


def test_steps_of_several_threads_are_kept_apart_and_count_until_there_are_own_ones(cache: Path) -> None:
    two, slow = Deployment(threads=2), replace(STEP, best=0.3, own=0.3)
    remember({"a": STEP}, Deployment())
    alone = winograd()
    assert means_here(two) == means_here(Deployment())
    remember({"a": slow}, two)
    kinds = json.loads(own_steps_path().read_text())["kinds"]
    assert {kind: list(steps) for kind, steps in kinds.items()} == {
        processor_kind(): ["a"],
        f"2 threads of {processor_kind()}": ["a"],
    }
    one = load_means(SHIPPED, processor_kind())
    one = one.extended(means_of_timed([STEP], one))
    assert means_here(two) == one.extended(means_of_timed([slow], one))
    assert winograd(threads=2) > alone


def test_another_runtime_s_steps_are_kept_apart(cache: Path) -> None:
    before = winograd()
    remember({"a": STEP}, Deployment("openvino"))
    assert winograd() == before
    base = load_means(SHIPPED, machine_kind("openvino"))
    assert means_here(Deployment("openvino")) == base.extended(means_of_timed([STEP], base))


def test_a_device_s_steps_are_kept_apart_from_the_processor_s(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_rewrite.latency.device.gpu_model", lambda: "NVIDIA H100, 580.1")
    before = winograd()
    remember({"a": STEP}, Deployment("cuda"))
    assert winograd() == before
    assert list(json.loads(own_steps_path().read_text())["kinds"]) == ["cuda on NVIDIA H100"]
    base = load_means(SHIPPED)
    assert means_here(Deployment("cuda")) == base.extended(means_of_timed([STEP], base))


def test_the_oldest_steps_are_forgotten(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_means, "MOST_STEPS", 3)
    for ids in ("abc", "a", "d"):
        remember(dict.fromkeys(ids, STEP), Deployment())
    assert list(json.loads(own_steps_path().read_text())["kinds"][processor_kind()]) == ["c", "a", "d"]


@pytest.mark.parametrize(
    "damage",
    ["", "[]", '{"format": "rewritegym.own-steps", "version": 99}', '{"format": "rewritegym.own-steps", "version": 1}',
     '{"format": "rewritegym.own-steps", "version": 1, "kinds": {"KIND": {"a": [["x"], 1]}}}'],
)  # fmt: skip
def test_a_damaged_file_is_left_aside_and_then_replaced(cache: Path, damage: str) -> None:
    before = winograd()
    cache.mkdir()
    own_steps_path().write_text(damage.replace("KIND", processor_kind()))
    with pytest.warns(RuntimeWarning, match="rewritegym experience learn"):
        assert winograd() == before
    remember({"a": STEP}, Deployment())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert winograd() < before


def test_what_cannot_be_written_costs_a_warning(cache: Path) -> None:
    cache.write_text("in the way of the folder")
    with pytest.warns(RuntimeWarning, match="what this search learnt is lost"):
        remember({"a": STEP}, Deployment())


def test_a_users_search_leaves_what_it_timed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, timer = chain_problem(tmp_path, 2), ExactTimer()
    for experience, asked, leaves in (("off", True, False), ("on", False, False), ("on", True, True)):
        monkeypatch.setenv("REWRITEGYM_EXPERIENCE", "off" if experience == "off" else str(tmp_path / "x.sqlite3"))
        options = RegionalOptions(climb=False, draft=False, cache=False, experience=asked)
        RegionalAgent(options, timer=lambda _: timer).optimize(problem, BUDGET)
        assert own_steps_path().exists() == leaves
    own_steps_path().unlink()
    RegionalAgent(options, timer=lambda _: timer, log=ExperienceLog(None)).optimize(problem, BUDGET)
    assert not own_steps_path().exists()  # the log is not the user's
