"""Compare results of `--provider best` with the faster of two runtimes, out of a table of `benchmarks.results`.

    python -m benchmarks.results --agents --controls best-runtime --peers ort-all openvino --budget 600 --seeds 1 \\
        --out benchmarks/results/MACHINE/best-runtime.json
    python -m benchmarks.best_runtime benchmarks/results/MACHINE/best-runtime.json

A user who compares runtimes without rewriting anything takes the faster one, so that is what a result must beat. All
three were timed in the same sessions: the ratio is taken in each of them, and its interval is over them. A result that
is the original in one of the runtimes is as fast as that, and what was timed of it once more does not count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from benchmarks.figures.tables import markdown, milliseconds
from benchmarks.protocol.judging.intervals import Interval, over_models, over_sessions
from benchmarks.protocol.searches.faster_runtime import FASTER_RUNTIME
from benchmarks.protocol.table import Row, counts
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import PROVIDERS
from graph_rewrite.system.commands import run_command

OPENVINO = "openvino"
LEAST = 0.99
"""A result is not behind the faster runtime where the lower end of its ratio to that is no less."""


@dataclass(frozen=True)
class Arguments:
    """Compare the results of --provider best with the faster of ONNX Runtime and OpenVINO."""

    file: tyro.conf.Positional[Path]
    """A results file of benchmarks.results with the control best-runtime and the peer openvino."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object instead of a table."""


@dataclass(frozen=True)
class RuntimeComparison:
    """A model in both runtimes. Speed-ups are over the original in ONNX Runtime."""

    model: str
    baseline_ms: float
    openvino: Interval
    result: Interval
    runtime: str
    """The runtime that the result is deployed in."""
    gain: Interval
    """The speed-up of the result over the faster of the two originals."""
    ratios: tuple[float, ...]
    """The logs of the gain, one per session."""

    @property
    def is_behind(self) -> bool:
        """True where the result may be slower than the faster runtime."""
        return self.gain.low < LEAST


def compared(rows: Sequence[Row]) -> list[RuntimeComparison]:
    """Return the models of a table that have a result of the control and one of OpenVINO, in its order.

    Raises:
        UserError: there are none, or the two were not judged in the same sessions.
    """
    theirs = {row["model"]: row for row in rows if row["agent"] == OPENVINO and counts(row)}
    ours = [row for row in rows if row["agent"] == FASTER_RUNTIME and counts(row) and row["model"] in theirs]
    if not ours:
        raise UserError(f"no model has results of both {FASTER_RUNTIME} and {OPENVINO}")
    return [_comparison(row, theirs[row["model"]]) for row in ours]


def _comparison(ours: Row, openvino: Row) -> RuntimeComparison:
    rewritten, plain = bool(ours["rewrites"]), openvino["sessions"]
    if rewritten and ours["judgement"] != openvino["judgement"]:
        raise UserError(f"{ours['model']}: {FASTER_RUNTIME} and {OPENVINO} were judged apart, not in one command")
    original = [0.0] * len(plain)
    kept = plain if ours["deployment"]["provider"] == OPENVINO else original
    result = ours["sessions"] if rewritten else kept
    faster = plain if sum(plain) > 0.0 else original
    ratios = tuple(a - b for a, b in zip(result, faster, strict=True))
    return RuntimeComparison(
        ours["model"], openvino["baseline_ms"], over_sessions(plain), over_sessions(result), _runtime_of(ours),
        over_sessions(ratios), ratios,
    )  # fmt: skip


def _runtime_of(row: Mapping[str, Any]) -> str:
    return PROVIDERS[row["deployment"]["provider"]].title


def table(found: Sequence[RuntimeComparison]) -> str:
    """Return the comparisons as a Markdown table, with their geometric mean."""
    rows = [["model", "original", "OpenVINO", "result", "deployed in", "over the faster of the two"]]
    for one in found:
        rows.append([
            one.model, milliseconds(one.baseline_ms), _text(one.openvino), _text(one.result), one.runtime,
            _text(one.gain),
        ])  # fmt: skip
    behind = [one.model for one in found if one.is_behind]
    rows.append(["geometric mean", "", "", "", "", _text(mean_gain(found))])
    said = ", ".join(behind) or "none"
    return f"{markdown(rows)}\nLower end below {LEAST}: {said}.\n"


def mean_gain(found: Sequence[RuntimeComparison]) -> Interval:
    """Return the geometric mean of the gains over models."""
    return over_models({one.model: [one.ratios] for one in found})


def _text(estimate: Interval) -> str:
    return f"{estimate.speedup:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.best_runtime")

    def command() -> int:
        try:
            rows: list[Row] = json.loads(arguments.file.read_text())["rows"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{arguments.file} is no results file of benchmarks.results ({error!r})") from error
        found = compared(rows)
        if arguments.json:
            mean = mean_gain(found)
            print(json.dumps({"models": [asdict(one) for one in found], "mean": asdict(mean)}))
        else:
            print(table(found), end="")
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
