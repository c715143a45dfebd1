"""The gain by huge pages: the row of a model whose judgement is known, and what is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.latency import memory_pages
from benchmarks.latency.memory_pages import Arguments, measured, run, table
from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.judging.intervals import over_sessions
from benchmarks.protocol.judging.judgement import Judgement, Ruling
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.system import huge_pages

LOGS = {
    "original in huge pages": (0.10, 0.12, 0.11),
    "result": (0.20, 0.21, 0.19),
    "result in huge pages": (0.40, 0.42, 0.41),
}


def judgement_with(failure: str) -> Any:
    """Return what stands in for `judged`: logs of speed-ups as above, the last contestant with a failure."""

    def judge(
        folder: Path, original: Contestant, contestants: list[Contestant], *rest: object, **options: object
    ) -> Judgement:
        assert original.environment == memory_pages.SMALL
        assert [bool(one.environment) for one in contestants] == [False, True, False]
        rulings = {}
        for one in contestants:
            logs = LOGS[one.name]
            rulings[one.name] = Ruling(over_sessions(logs), None, 5.5, 5.0, logs, 0.0, True)
        rulings["result in huge pages"] = replace(rulings["result in huge pages"], failure=failure)
        return Judgement("key", (), rulings)

    return judge


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    monkeypatch.setattr(memory_pages, "made_again", lambda table, agent, model, path: tmp_path / "result.onnx")
    monkeypatch.setattr(memory_pages, "located", lambda model, batch: tmp_path / "model.onnx")
    monkeypatch.setattr(memory_pages, "judged", judgement_with(""))
    return Arguments(("nasrnn",), table=tmp_path / "table.json", out=tmp_path / "pages.json", runs=tmp_path)


def test_the_gain_in_huge_pages_is_taken_session_by_session(arguments: Arguments) -> None:
    row = measured(arguments, "nasrnn", print)
    assert row.baseline_ms == 5.5
    assert [math.log(one[0]) for one in (row.original_huge, row.result_small, row.result_huge)] == pytest.approx(
        [0.11, 0.20, 0.41]
    )
    speedup, low, high = row.both_huge
    assert math.log(speedup) == pytest.approx(0.30)
    assert low == pytest.approx(high)  # 0.3 in every session, though both vary
    assert "| nasrnn | 5.5 ms | 1.12 (" in table([row])


def test_a_model_that_cannot_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch, arguments: Arguments) -> None:
    monkeypatch.setattr(memory_pages, "judged", judgement_with("it crashed"))
    with pytest.raises(MachineError, match="nasrnn: it crashed"):
        measured(arguments, "nasrnn", print)


def test_rows_are_written_where_huge_pages_are_given_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: Arguments
) -> None:
    modes = tmp_path / "enabled"
    monkeypatch.setattr(huge_pages, "_MODES", modes)
    monkeypatch.delenv(huge_pages.TUNABLES, raising=False)
    modes.write_text("[always] madvise never")
    with pytest.raises(UserError, match="the mode is always"):
        list(run(arguments, print))
    assert not arguments.out.exists()
    modes.write_text("always [madvise] never")
    assert [row.model for row in run(arguments, print)] == ["nasrnn"]
    assert json.loads(arguments.out.read_text())["rows"][0]["baseline_ms"] == 5.5
    assert "nasrnn" in arguments.out.with_suffix(".md").read_text()
