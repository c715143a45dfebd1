"""The process of a run of `benchmarks.papers.pet_ablation`: it looks for mutants before the agent searches.

`python -m benchmarks.papers.pet_search REQUEST.json FOLDER`, as `benchmarks.protocol.searches.process`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agents.core.base import Budget
from agents.searching.mutants import Meters, search_mutants
from benchmarks.protocol.searches.process import main
from benchmarks.protocol.searches.runs import Run
from graph_rewrite.mutate.repairs import REPAIRS, Kind, RepairMethod
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.task.problem import Problem


@dataclass(frozen=True)
class Variant:
    """The means of a search: rules that are equal everywhere, mutants, and the repairs that these may have."""

    exact: bool
    mutants: bool
    repairs: Mapping[Kind, RepairMethod] = field(default_factory=lambda: REPAIRS)


VARIANTS: Mapping[str, Variant] = {
    "exact": Variant(exact=True, mutants=False),
    "mutants": Variant(exact=False, mutants=True),
    "both": Variant(exact=True, mutants=True),
    "recompute-only": Variant(exact=True, mutants=True, repairs={"recompute": REPAIRS["recompute"]}),
}
"""The bars of PET's figure 13, and mutants whose repair is always to compute again, as the paper's are."""


def prepare(problem: Problem, run: Run, budget: Budget, meters: Meters | None = None) -> Budget:
    """Look for the mutants of a variant, offer them, and list them in the log. Return what is left of the budget.

    Raises:
        KeyError: the run is of no variant.
    """
    variant = VARIANTS[run.name]
    if not variant.mutants:
        return budget
    began = time.monotonic()
    found = search_mutants(problem, budget.seconds, meters, variant.repairs, lambda rules: print(rules, flush=True))
    print(f"{len(found)} mutants in {time.monotonic() - began:.0f} s", flush=True)
    for rule in found:
        print(f"  {rule.name}: {rule.equation}", flush=True)
    if not variant.exact:
        old = problem.rewriter
        problem.rewriter = Rewriter(found, old.granularity, old.deployment, old.domains, old.faults)
    return replace(budget, seconds=max(1.0, budget.seconds - (time.monotonic() - began)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], prepare))
