"""Options of an optimisation, read from texts."""

from typing import Any

import pytest

from agents.optimization.options import OptimizeOptions, parse_threads, shape_texts, threads_text
from graph_rewrite.errors import UserError
from graph_rewrite.rules import rule_set
from graph_rewrite.symbolic.bindings import parse_bindings
from graph_rewrite.system.cpu_count import physical_cores
from graph_rewrite.system.durations import parse_seconds


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("120s", 120.0), ("1.5m", 90.0), ("2h", 7200.0)])
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "0", "-5", "5 years", "nan", "9" * 400, "9" * 30 + "h"])
def test_texts_that_are_no_time(text: str) -> None:
    with pytest.raises(UserError, match="is no time"):
        parse_seconds(text)


def plant_cores(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr("agents.optimization.options.physical_cores", lambda: cores)
    monkeypatch.setattr("graph_rewrite.system.cpu_count.available_cores", lambda: cores)


def test_threads_are_all_cores_by_default_and_may_be_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_threads("") == (physical_cores(),)
    plant_cores(monkeypatch, 8)
    assert parse_threads("4") == (4,)
    assert parse_threads("1, 4,1") == (1, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "at least 1"),
        ("9", "may use 8 cores"),
        ("many", "write a number"),
        ("1,,2", "write"),
        ("²", "write"),
        ("1" * 5000, "write"),
    ],
)
def test_mistakes_in_threads(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_cores(monkeypatch, 8)
    with pytest.raises(UserError, match=message):
        parse_threads(text)


def test_the_number_of_threads_may_be_left_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_cores(monkeypatch, 6)
    monkeypatch.setattr("graph_rewrite.rewriting.session_choices.available_cores", lambda: 6)
    left = OptimizeOptions(threads=threads_text("auto"))
    assert (left.thread_counts, left.thread_choices) == ((6,), (1, 2, 3, 4, 6))
    assert OptimizeOptions().thread_choices == OptimizeOptions(threads="2").thread_choices == ()
    with pytest.raises(UserError, match="--fixed-deployment forbids it"):
        _ = OptimizeOptions(threads="auto", fixed_deployment=True).thread_choices
    with pytest.raises(UserError, match="add --threads 1"):
        _ = OptimizeOptions(threads="auto", cpu_clock=True).thread_choices
    plant_cores(monkeypatch, 1)
    assert left.thread_choices == ()


def test_the_cpu_clock_is_for_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_cores(monkeypatch, 8)
    assert parse_threads("1", cpu_clock=True) == (1,)
    with pytest.raises(UserError, match="add --threads 1"):
        parse_threads("1,2", cpu_clock=True)


def test_shapes_by_name_are_read_as_they_are_written() -> None:
    shapes = {"ids": (1, 128), "a:b": (2,)}
    assert parse_bindings(OptimizeOptions(shape=shape_texts(shapes)).shape) == [shapes]


def test_skipped_rules_are_not_in_the_set() -> None:
    options = OptimizeOptions(skip_rules="ConvBiasToAdd, DropIdentity")
    names = {rule.name for rule in rule_set(options.rule_names)}
    assert {rule.name for rule in rule_set("default")} - names == {"ConvBiasToAdd", "DropIdentity"}


def test_single_rules_keep_the_order_of_their_set() -> None:
    assert [rule.name for rule in rule_set("ConvBiasToAdd,DropIdentity")] == [
        rule.name for rule in rule_set("default") if rule.name in ("DropIdentity", "ConvBiasToAdd")
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("DropTransposed", "DropTranspose"),
        ("default,-ConvBiasToAd", "ConvBiasToAdd"),
        ("my_own_set", "default, generated, taso and all"),
        ("default,-default", "leave none"),
    ],
)
def test_mistakes_in_rules_name_close_ones(names: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        rule_set(names)


def test_a_checkpoint_is_for_the_learned_agent() -> None:
    assert OptimizeOptions(checkpoint="runs/a").agent_spec == "ppo:checkpoint=runs/a"
    with pytest.raises(UserError, match="not for greedy"):
        _ = OptimizeOptions(agent="greedy", checkpoint="runs/a").agent_spec


@pytest.mark.parametrize(
    ("load", "given", "threads", "clock"),
    [
        (0.5, {}, 1, "wall"),
        (9.0, {}, 1, "cpu"),
        (9.0, {}, 2, "wall"),
        (9.0, {"threads": "auto"}, 1, "wall"),
        (0.5, {"cpu_clock": True, "threads": "1"}, 1, "cpu"),
    ],
)
def test_one_thread_on_a_busy_machine_is_timed_by_its_own_clock(
    monkeypatch: pytest.MonkeyPatch, load: float, given: dict[str, Any], threads: int, clock: str
) -> None:
    plant_cores(monkeypatch, 4)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert OptimizeOptions(provider="cpu", **given).clock_of(threads) == clock
