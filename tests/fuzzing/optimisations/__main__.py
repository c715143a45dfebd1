"""The differential fuzzer of whole optimisations: `make fuzz-optimisations`, or
`python -m tests.fuzzing.optimisations`.

Each case makes a random model, optimises it by `rewritegym.optimize` with a planted meter, and compares the file that
comes out with the original in plain ONNX Runtime. A case is told by its seed and its agent alone, so that a failure can
be repeated: `--first SEED --models 1 --agent AGENT`. Models that failed stay in `--folder`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

from tests.fuzzing.optimisations.whole import Verdict, check

AGENTS = ("walk", "walk", "walk", "greedy")
"""Agents in turn: random walks, and a search for few operators."""
_TELLING = 0.5
_FATAL_ONLY = 4


@dataclass
class Tally:
    """The coverage and the findings of a number of cases."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def faults(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.fault]

    @property
    def rewritten(self) -> int:
        """Models in which at least one rewrite was applied and judged."""
        return sum(bool(verdict.rules) for verdict in self.verdicts)

    @property
    def telling(self) -> int:
        """Models with at least one input on which rounding leaves most output elements most of their digits."""
        return sum(verdict.judged > 0 and verdict.told >= _TELLING for verdict in self.verdicts)

    @property
    def operators(self) -> Counter[str]:
        """Models by operator."""
        return Counter(name for verdict in self.verdicts for name in verdict.operators)

    @property
    def rules(self) -> Counter[str]:
        """Models by rule that was applied."""
        return Counter(name for verdict in self.verdicts for name in verdict.rules)

    def __str__(self) -> str:
        count, kinds = len(self.verdicts), Counter(verdict.kind for verdict in self.faults)
        found = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no fault"
        refused = sum(bool(verdict.refused) for verdict in self.verdicts)
        symbolic = sum(verdict.symbolic for verdict in self.verdicts)
        return (
            f"{count} models: {found}; {self.rewritten} rewritten ({symbolic} with a symbolic dimension), by"
            f" {len(self.rules)} rules, over {len(self.operators)} operators; {refused} refused by the checks;"
            f" on {self.telling} the comparison tells something of most elements"
        )


def agent_of(seed: int) -> str:
    """The agent whose turn it is at a seed."""
    return AGENTS[seed % len(AGENTS)]


def run_cases(seeds: Iterable[int], folder: Path, agent: str = "") -> Tally:
    """Check the models of some seeds; faults are printed as they are found."""
    tally = Tally()
    for seed in seeds:
        try:
            verdict = check(seed, folder, agent or agent_of(seed))
        except Exception:  # a bug here must not end the run
            verdict = Verdict(seed, frozenset(), fault=traceback.format_exc(), kind="fuzzer")
        tally.verdicts.append(verdict)
        if verdict.fault:
            where = folder / f"model-{seed}.onnx"
            print(f"case {seed} ({agent or agent_of(seed)}), {where}: {verdict.kind}: {verdict.fault}", flush=True)
        elif verdict.refused:
            print(f"case {seed}: refused: {verdict.refused}", flush=True)
        if len(tally.verdicts) % 50 == 0:
            print(tally, flush=True)
    return tally


def _table(title: str, counts: Counter[str]) -> str:
    rows = [f"  {count:5d}  {name}" for name, count in counts.most_common()]
    return "\n".join([f"{title}:", *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases until the models are done or the time is over; return 1 where one of them failed."""
    parser = argparse.ArgumentParser(
        prog="tests.fuzzing.optimisations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no model after this time")
    parser.add_argument("--agent", default="", help="walk or greedy; by default in turn, by seed")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where models that failed are kept")
    options = parser.parse_args(arguments)
    ort.set_default_logger_severity(_FATAL_ONLY)  # models have unused constants, which ONNX Runtime warns of
    options.folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.seconds
    seeds = (s for s in range(options.first, options.first + options.models) if time.monotonic() < ends)
    tally = run_cases(seeds, options.folder, options.agent)
    print(_table("models by operator", tally.operators))
    print(_table("models by rule", tally.rules))
    print(tally)
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
