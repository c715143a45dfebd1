"""Results of two runtimes against the faster of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import best_runtime
from benchmarks.best_runtime import compared, mean_gain, table
from graph_rewrite.errors import UserError


def row(agent: str, model: str, speedups: tuple[float, ...], **more: Any) -> dict[str, Any]:
    return {
        "agent": agent, "model": model, "verified": True, "speedup": speedups[0] if speedups else 1.0, "failure": "",
        "baseline_ms": 10.0, "judgement": "one", "sessions": list(map(math.log, speedups)), **more,
    }  # fmt: skip


def ours(model: str, speedups: tuple[float, ...], provider: str = "cpu", **more: Any) -> dict[str, Any]:
    found = {"deployment": {"provider": provider}, "rewrites": [{"rule": "Winograd", "sites": 3}], **more}
    return row("best-runtime", model, speedups, **found)


ROWS = [
    row("openvino", "a", (1.2, 1.3, 1.25)),
    ours("a", (1.8, 1.95, 1.875), "openvino"),
    row("openvino", "b", (0.8, 0.8, 0.8)),
    ours("b", (1.5, 1.5, 1.5)),
    row("openvino", "c", (1.1, 1.11, 1.1)),
    ours("c", (), rewrites=[]),
    row("openvino", "without a result", (1.0, 1.0, 1.0)),
]


def test_a_result_is_compared_with_the_faster_runtime_session_by_session() -> None:
    a, b, c = compared(ROWS)
    assert (a.model, b.model, c.model) == ("a", "b", "c")
    assert a.gain.speedup == pytest.approx(1.5)
    assert a.gain.low == pytest.approx(1.5), "what sessions have in common cancels"
    assert a.openvino.low < 1.25 < a.openvino.high
    assert (a.runtime, b.runtime) == ("OpenVINO", "ONNX Runtime")
    assert b.gain.speedup == pytest.approx(1.5), "OpenVINO is slower there"
    assert c.gain.speedup == pytest.approx(1 / 1.1033, rel=1e-3)
    assert [one.is_behind for one in (a, b, c)] == [False, False, True]
    assert mean_gain((a, b)).speedup == pytest.approx(1.5)


@pytest.mark.parametrize(("plain", "gain"), [((1.2, 1.25, 1.3), 1.0), ((0.98, 0.99, 0.97), 0.98)])
def test_an_original_deployed_in_openvino_is_as_fast_as_it_is_there(plain: tuple[float, ...], gain: float) -> None:
    """However the same file was timed once more; it is behind where ONNX Runtime would have been faster."""
    (found,) = compared([row("openvino", "d", plain), ours("d", (1.1, 1.2, 1.4), "openvino", rewrites=[])])
    assert found.gain.speedup == pytest.approx(gain, rel=1e-3)
    assert found.is_behind is (gain < 0.99)


def test_the_table_names_what_is_behind() -> None:
    shown = table(compared(ROWS))
    assert "| a | 10 ms | 1.25 (1.13 to 1.38) | 1.87 (1.70 to 2.07) | OpenVINO | 1.50 (1.50 to 1.50) |" in shown
    assert shown.endswith("Lower end below 0.99: c.\n")
    assert "Lower end below 0.99: none." in table(compared(ROWS[:4]))


def test_what_was_judged_apart_is_refused() -> None:
    with pytest.raises(UserError, match="openvino were judged apart"):
        compared([ROWS[0], {**ROWS[1], "judgement": "another"}])
    with pytest.raises(UserError, match="no model has results of both"):
        compared(ROWS[:1])


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.json"
    file.write_text(json.dumps({"rows": ROWS}))
    monkeypatch.setattr("sys.argv", ["best_runtime", str(file)])
    assert best_runtime.main() == 0
    assert "| geometric mean |" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["best_runtime", str(file), "--json"])
    assert best_runtime.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in printed["models"]] == ["a", "b", "c"]
    assert printed["mean"]["speedup"] > 1.0
    monkeypatch.setattr("sys.argv", ["best_runtime", str(tmp_path / "none.json")])
    assert best_runtime.main() == 2
    assert "is no results file" in capsys.readouterr().err
