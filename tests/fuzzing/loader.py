"""The fuzz target of loading: `make fuzz`, or `python -m tests.fuzzing.loader --seconds 600 --first 1000000`.

Each case damages a model of the corpus, and loads, normalises, rewrites, saves and loads it again. Every step must end
with a result or with a `UserError`, within bounds of time and memory. A case is told by its seed alone, so that a
failure can be repeated: `--first SEED --cases 1`.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import onnx

from graph_rewrite import load, save
from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.rules import Rewriter, rule_set
from tests.fuzzing.corpus import CORPUS
from tests.fuzzing.mutations import damaged_bytes, damaged_fields

SLOW_S = 20.0
_APPLIED = 3


@cache
def _corpus(operators: bool) -> tuple[onnx.ModelProto, ...]:
    if operators:
        from onnx.backend.test.case.node import collect_testcases  # makes all inputs and outputs: seconds

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(test.model for test in collect_testcases(None))
    return tuple(make() for make in CORPUS)


@cache
def _rewriter() -> Rewriter:
    return Rewriter(rule_set("default"))  # without a collector of faults: what a rule raises goes through


def case(seed: int, operators: bool = False) -> bytes:
    """Return the damaged model of a seed: of the corpus, or of onnx's tests of all its operators."""
    rng = random.Random(seed)
    model = rng.choice(_corpus(operators))
    if rng.random() < 0.7:
        return damaged_fields(model, rng).SerializeToString()
    return damaged_bytes(model.SerializeToString(), rng)


def check(data: bytes, folder: Path) -> str:
    """Take a damaged model through all steps; return how far it came.

    Raises:
        Exception: whatever is no answer to a damaged model; that is a bug.
    """
    path = folder / "model.onnx"
    path.write_bytes(data)
    stage = "load"
    try:
        graph = load(path)
        assert load(save(graph, folder / "saved.onnx")).hash == graph.hash
        stage = "normalise"
        normal, _ = normalise(graph)
        stage = "rewrite"
        for candidate in _rewriter().candidates(normal)[:_APPLIED]:
            try:
                save(candidate.apply(), folder / "rewritten.onnx")
            except InvalidRewriteError:
                continue
    except UserError as error:
        if not str(error):
            raise AssertionError("an error without a message") from error
        return f"refused at {stage}"
    return "accepted"


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"a case took more than {SLOW_S:g} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases until the time is over; return 1 where one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--operators", action="store_true", help="damage onnx's tests of all operators instead")
    options = parser.parse_args(arguments)
    ends, failures, done = time.monotonic() + options.seconds, 0, 0
    outcomes: dict[str, int] = {}
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory(prefix="rewritegym-fuzz-") as folder:
        for seed in range(options.first, options.first + options.cases):
            if time.monotonic() > ends:
                break
            done += 1
            signal.setitimer(signal.ITIMER_REAL, SLOW_S)
            try:
                outcome = check(case(seed, options.operators), Path(folder))
            except Exception:
                failures, outcome = failures + 1, "failed"
                print(f"case {seed} failed:\n{traceback.format_exc()}", flush=True)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(f"{done} cases: {', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items()))}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
