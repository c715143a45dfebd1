"""Repairs: what makes a mutant equal to its original everywhere (PET, OSDI'21, sections 5.2 and 5.3).

Four kinds: a constant map, a gap of zeros between merged images, a halo around split ones, and wrong boxes computed
again. `choose` takes the cheapest that is proved.
"""

from graph_rewrite.mutate.repairs.choice import REPAIRS, RepairMethod, choose
from graph_rewrite.mutate.repairs.constant_map import map_repair
from graph_rewrite.mutate.repairs.gap import gap_repair
from graph_rewrite.mutate.repairs.halo import halo_repair
from graph_rewrite.mutate.repairs.recompute import recompute_repair
from graph_rewrite.mutate.repairs.repair import Cost, Kind, Repair, RepairCase

__all__ = [
    "REPAIRS",
    "Cost",
    "Kind",
    "Repair",
    "RepairCase",
    "RepairMethod",
    "choose",
    "gap_repair",
    "halo_repair",
    "map_repair",
    "recompute_repair",
]
