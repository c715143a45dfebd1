"""Kill, or end, optimisations at random moments and look at what is left:

    python -m tests.robustness.killing --moments 50 --signal KILL TERM INT TERM-TWICE INT-TWICE

The moments are spread over the whole of a run that nothing disturbs, from the first import to the last word printed,
and are the same in every session that measures the same time. Each run has a cache, a temporary folder and with that a
lock of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.robustness.leftovers import cached_rows, check_after_second_run, check_folders, check_output, living

ROOT = Path(__file__).resolve().parents[2]
MODEL, OUTPUT = "net.onnx", "net.optimized.onnx"
ORPHANED_S = 20.0
"""Seconds after which no process of a killed run may be alive; they look once a second, longer on a busy machine."""
ENDED_S = 120.0
"""Seconds after which a run must have ended that was asked to; it ends within ten on a machine that is not busy."""


TWICE = "-TWICE"
SIGNALS = {
    "KILL": signal.SIGKILL,
    "TERM": signal.SIGTERM,
    "INT": signal.SIGINT,
    f"TERM{TWICE}": signal.SIGTERM,
    f"INT{TWICE}": signal.SIGINT,
}
AGAIN_S = 1.5
"""Seconds after which a second signal comes; one that comes sooner counts as the same wish."""
PROGRAMS = {"optimize.py": (str(ROOT / "optimize.py"),), "rewritegym": ("-m", "rewritegym", "optimize")}
"""The ways to start an optimisation."""


@dataclass(frozen=True)
class Trial:
    """A folder in which runs happen, their time limit in seconds, and the arguments of Python that start them."""

    folder: Path
    limit: float
    program: tuple[str, ...] = PROGRAMS["optimize.py"]

    @property
    def output(self) -> Path:
        return self.folder / OUTPUT

    def environment(self) -> dict[str, str]:
        """Everything that a run leaves lies in the folder: cache, memory of results, temporary files and the lock."""
        kept = {name: text for name, text in os.environ.items() if name != "REWRITEGYM_WORKSPACE"}
        (self.folder / "tmp").mkdir(exist_ok=True)
        own = {"REWRITEGYM_CACHE": str(self.folder / "cache"), "TMPDIR": str(self.folder / "tmp")}
        return {**kept, **own, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def command(self, *program: str) -> list[str]:
        options = [
            "--threads",
            "1",
            "--cpu-clock",
            "--fixed-deployment",
            "--time-limit",
            f"{self.limit:g}s",
            "--overwrite",
            "--json",
        ]
        return [sys.executable, *program, MODEL, OUTPUT, *options]

    def start(self, *program: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*(program or self.program)), cwd=self.folder, env=self.environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The end of a run that a signal met at a moment, in seconds from its start."""

    moment: float
    status: int
    wrote: bool
    took: float
    """Seconds from the signal to the end."""
    rows: int
    """Measurements that the cache held then."""
    found: int = 0
    """Measurements that the second run found in the cache."""
    remembered: bool = False
    """Whether the second run took a remembered result."""

    def __str__(self) -> str:
        second = "remembered" if self.remembered else f"{self.found} of them found"
        wrote = "model written" if self.wrote else "no model"
        return f"{self.moment:6.2f} s: status {self.status}, {wrote}, {self.took:.1f} s, {self.rows} cached, {second}"


def write_net(path: Path, layers: int = 2, channels: int = 64, size: int = 14) -> None:
    """Write convolutions that have a faster form, which a search of few seconds finds."""
    rng, nodes, weights, value = np.random.default_rng(0), [], [], "x"
    for i in range(layers):
        kernel = rng.standard_normal((channels, channels, 3, 3)) / (3 * channels**0.5)
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [value, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"relu{i}"))
        value = f"r{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, size, size)) for name in ("x", value)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))


def new_trial(folder: Path, limit: float, program: str = "optimize.py") -> Trial:
    """Make a folder with the model."""
    folder.mkdir()
    write_net(folder / MODEL)
    return Trial(folder, limit, PROGRAMS[program])


def undisturbed(trial: Trial) -> float:
    """Return the seconds of a run that nothing disturbs, from its start to its end."""
    began = time.monotonic()
    process = trial.start()
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert json.loads(output)["verified"]
    took = time.monotonic() - began
    check_output(trial.folder / MODEL, trial.output)
    return took


def moments(count: int, whole: float, seed: int = 0) -> list[float]:
    """Return random moments of a run that takes `whole` seconds, one in each of `count` equal parts."""
    return list((np.arange(count) + np.random.default_rng(seed).random(count)) * whole / count)


def signalled(trial: Trial, moment: float, number: signal.Signals, *, twice: bool = False) -> Outcome:
    """Start a run, send it a signal at a moment, wait for its end, and check what it left.

    SIGKILL and SIGTERM meet the main process alone, Ctrl-C the whole group, as in a terminal.

    Args:
        twice: send the signal once more, after `AGAIN_S` seconds.
    """
    process, sent = trial.start(), time.monotonic() + moment
    for wait in (moment, AGAIN_S)[: 1 + twice]:
        try:
            process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            sent = time.monotonic()
            (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    output, errors = process.communicate(timeout=ENDED_S)
    took = time.monotonic() - sent
    left = living(process.pid, ORPHANED_S)
    assert not left, f"after {moment:.2f} s: processes live on: {left}"
    if number != signal.SIGKILL:
        check_words(process.returncode, output, errors, trial)
    if trial.output.exists():
        check_output(trial.folder / MODEL, trial.output)
    check_folders(trial.folder)
    return Outcome(moment, process.returncode, trial.output.exists(), took, cached_rows(trial.folder))


def check_words(status: int, output: str, errors: str, trial: Trial) -> None:
    """Check that a run that was asked to end says what became of it: a result, or that it was interrupted."""
    if status == -signal.SIGINT:  # Python itself answered, while it started or began to import the program
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    else:
        assert "Traceback" not in errors, errors
    if status == 0:
        result = json.loads(output)
        assert result["verified"]
        assert Path(trial.folder, result["onnx_path"]) == trial.output
        if result["message"].startswith("the original is kept"):
            assert trial.output.read_bytes() == (trial.folder / MODEL).read_bytes()
        return
    assert not output
    assert not trial.output.exists()
    if status == 130:
        assert errors.strip().splitlines()[-1].startswith("interrupted"), errors
    else:  # before Python answers signals at all
        assert status in (-signal.SIGINT, -signal.SIGTERM), (status, errors)


def resumed(trial: Trial, before: Outcome) -> Outcome:
    """Run again in the folder of a killed run, and check that it ends well and uses what that one has measured."""
    counts = trial.folder / "counts.json"
    process = trial.start(str(ROOT / "tests" / "robustness" / "counted.py"), str(counts))
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    result = json.loads(output)
    assert result["verified"]
    assert "corrupt" not in errors, errors
    check_output(trial.folder / MODEL, trial.output)
    check_folders(trial.folder)
    check_after_second_run(trial.folder)
    counted, remembered = json.loads(counts.read_text()), result["message"].startswith("remembered")
    # A machine may be too busy for a second run to come as far as the first.
    assert counted["found"] or not counted["asked"] or not before.rows, "no measurement is found again"
    found = counted["found"]
    return Outcome(before.moment, before.status, before.wrote, before.took, before.rows, found, remembered)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns 1 where something was wrong."""
    parser = argparse.ArgumentParser(description="Kill optimisations at random moments and look at what is left.")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--signal", nargs="+", default=list(SIGNALS), choices=SIGNALS)
    parser.add_argument("--program", default="optimize.py", choices=PROGRAMS)
    parser.add_argument("--time-limit", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="killing-") as root:
        undisturbed_trial = new_trial(Path(root, "undisturbed"), options.time_limit, options.program)
        whole = undisturbed(undisturbed_trial)
        print(f"a run takes {whole:.1f} s", flush=True)
        for name in options.signal:
            longest = 0.0
            for i, moment in enumerate(moments(options.moments, whole, options.seed)):
                trial = new_trial(Path(root, f"{name}-{i}"), options.time_limit, options.program)
                try:
                    outcome = signalled(trial, moment, SIGNALS[name], twice=name.endswith(TWICE))
                    outcome = resumed(trial, outcome) if name == "KILL" else outcome
                    longest = max(longest, outcome.took)
                    print(f"{name} at {outcome}", flush=True)
                except AssertionError as error:
                    wrong += 1
                    print(f"{name} at {moment:6.2f} s: WRONG: {error}", flush=True)
            print(f"{name}: all ended within {longest:.1f} s", flush=True)
    print(f"{wrong} wrong" if wrong else "all right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
