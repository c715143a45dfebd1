"""The lines that commands print about a search and its result."""

import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from agents.core.base import Budget, Search
from agents.greedy import GreedyAgent
from agents.reporting.progress import improvement_log, print_json, summary_line
from tests.agents.toys import chain_problem


def test_every_new_best_is_told_once(tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    log = improvement_log(console)

    def progress(search: Search) -> None:
        log(search)
        log(search)

    result = GreedyAgent(lookahead=4).optimize(chain_problem(tmp_path, 1), Budget(), progress=progress)
    lines = console.export_text().splitlines()
    assert len(lines) == len(result.improvements) > 0
    assert f"x{result.improvements[-1].speedup:.3f}" in lines[-1]


def test_the_result_in_a_sentence_names_the_deployment() -> None:
    entry = {
        "speedup": 2.0, "speedup_ci95": [1.9, 2.1], "latency_ms": 5.0, "rewrites": [{"rule": "A"}], "message": "equal",
        "deployment": {"threads": 4, "provider": "cpu"},
    }  # fmt: skip
    assert summary_line("m.onnx", entry) == (
        "m.onnx with 4 threads on cpu: 2.00 times as fast (1.90 to 2.10), 10.00 ms -> 5.00 ms"
    )
    kept = {**entry, "speedup": 1.0, "rewrites": [], "message": "the original is kept: nothing was surely faster"}
    assert summary_line("m.onnx", kept) == f"m.onnx with 4 threads on cpu: {kept['message']}"


def test_json_has_no_numbers_that_the_format_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"error": math.inf, "interval": (0.0, math.nan), "inner": [{"speedup": 1.5}]})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"error": None, "interval": [0.0, None], "inner": [{"speedup": 1.5}]}
