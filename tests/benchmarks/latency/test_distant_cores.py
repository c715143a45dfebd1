"""Results on near and on distant cores: rounds of planted models, told apart by planted looks."""

import json
from contextlib import nullcontext
from itertools import chain, repeat
from pathlib import Path

import pytest

from benchmarks.latency import distant_cores
from benchmarks.latency.distant_cores import Arguments, Round, rounds_of, rows_of, run, table
from graph_rewrite.errors import UserError

NEAR, DISTANT = 1.3e-7, 2.7e-7


class Machine:
    """Two models on a clock of their own; the cores move as planted, look by look."""

    def __init__(self, looks: list[float]) -> None:
        self.now, self._looks, self.hop = 0.0, chain(looks, repeat(looks[-1])), looks[0]

    def clock(self) -> float:
        return self.now

    def look(self) -> float:
        self.hop = next(self._looks)
        return self.hop

    def run(self, near_s: float, distant_s: float) -> float:
        took = near_s if self.hop == NEAR else distant_s
        self.now += took
        return took


def rounds_on(machine: Machine, seconds: float) -> list[Round]:
    original, result = (lambda: machine.run(0.02, 0.022)), (lambda: machine.run(0.01, 0.033))
    return list(rounds_of(original, result, machine.look, seconds, machine.clock))


def test_rounds_in_which_the_cores_move_are_left_out() -> None:
    found = rounds_on(Machine([NEAR, NEAR, NEAR, DISTANT, DISTANT, DISTANT]), 4.0)
    assert [one.hop_s for one in found[:3]] == [NEAR, NEAR, DISTANT]
    assert {(one.original_s, one.result_s) for one in found} == {(0.02, 0.01), (0.022, 0.033)}


def test_near_and_distant_cores_have_a_row_each() -> None:
    machine = Machine([NEAR, NEAR, DISTANT, DISTANT] * 6)
    near, distant = rows_of("toy", rounds_on(machine, 5.0))
    assert (near.cores, distant.cores) == ("near", "distant")
    assert near.speedup == pytest.approx(2.0)
    assert distant.speedup == pytest.approx(2 / 3)
    assert distant.hop_ns == pytest.approx(270.0)
    assert "| toy | distant | " in table([near, distant])
    (only,) = rows_of("toy", rounds_on(Machine([DISTANT]), 2.0))
    assert only.cores == "near"  # nothing is known of cores that are nearer


def test_rows_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        distant_cores, "measured", lambda arguments, model, look: rows_of(model, [Round(look(), 0.02, 0.01)])
    )
    monkeypatch.setattr(distant_cores, "probe_between", lambda cores: nullcontext(Machine([NEAR])))
    monkeypatch.setattr(distant_cores, "cores_for", lambda count: (0, 1))
    arguments = Arguments(("toy",), table=tmp_path / "cpu-t2.json", out=tmp_path / "cores.json")
    run(arguments)
    (row,) = json.loads(arguments.out.read_text())["rows"]
    assert (row["model"], row["cores"], row["speedup"]) == ("toy", "near", 2.0)
    assert "| toy | near | 1 | 130 ns |" in arguments.out.with_suffix(".md").read_text()


def test_one_core_has_no_distance(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(distant_cores, "cores_for", lambda count: (0,))
    with pytest.raises(UserError, match="one core"):
        run(Arguments(out=tmp_path / "cores.json"))
    assert not (tmp_path / "cores.json").exists()
