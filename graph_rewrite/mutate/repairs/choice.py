"""The choice of a repair: the cheapest one that is proved equal at every position."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from graph_rewrite.mutate.equivalence import prove
from graph_rewrite.mutate.repairs.constant_map import map_repair
from graph_rewrite.mutate.repairs.gap import gap_repair
from graph_rewrite.mutate.repairs.halo import halo_repair
from graph_rewrite.mutate.repairs.recompute import recompute_repair
from graph_rewrite.mutate.repairs.repair import Cost, Kind, Repair, RepairCase
from graph_rewrite.rewriting.rule import Refusal

RepairMethod = Callable[[RepairCase, Cost], Repair | Refusal]
REPAIRS: Mapping[Kind, RepairMethod] = {
    "map": map_repair,
    "gap": gap_repair,
    "halo": halo_repair,
    "recompute": recompute_repair,
}


def choose(
    case: RepairCase, cost: Cost, methods: Mapping[Kind, RepairMethod] = REPAIRS, most: float = math.inf
) -> Repair | Refusal:
    """Return the cheapest repair of a mutant. A repair counts only if a proof over the field finds it equal at every
    position: see `graph_rewrite.mutate.equivalence`.

    Args:
        case: the mutant and what is wrong with it.
        cost: the cost of a program at these shapes.
        methods: the kinds of repairs to try.
        most: a repair that costs as much is refused, without a proof.

    Returns:
        The repair, or a Refusal with the reasons of all kinds.
    """
    found: list[Repair] = []
    reasons: list[str] = []
    for kind, method in methods.items():
        repair = method(case, cost)
        if isinstance(repair, Refusal):
            reasons.append(f"{kind}: {repair.reason}")
        elif repair.cost < most:
            found.append(repair)
        else:
            reasons.append(f"{kind}: it costs too much")
    for repair in sorted(found, key=lambda each: each.cost):
        finding = prove(case.trials, repair.program)
        if finding is not None and finding.exact:
            return repair
        reasons.append(f"{repair.kind}: the repaired program is not equal everywhere")
    return Refusal("; ".join(reasons))
