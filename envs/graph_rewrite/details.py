"""The entries that the feature set `full` adds to the observation of a rewriting episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

import numpy as np
from numpy.typing import NDArray

from envs.attributes import REPEATS
from envs.feature_sets import CANDIDATE_DETAILS, CONTEXT, INSTRUCTIONS, family_of_rules
from envs.features import NODES
from envs.graph_rewrite.meta_graph import Choices
from envs.observation import Observation, ObservationLimits
from envs.vocabulary import NO_OP, PADDING, UNKNOWN
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.device import device_name, instruction_sets
from graph_rewrite.operators.nchwc import block_size
from graph_rewrite.runtime import OPTIMIZERS, Deployment
from graph_rewrite.system.cpu_count import available_cores

_DEPLOYMENT = 3
"""Index of the family of deployment choices."""


def full_entries(
    choices: Choices, limits: ObservationLimits, effects: Mapping[str, float], context: NDArray[np.float32]
) -> Observation:
    """Return the added entries, padded.

    Args:
        effects: share of the original's latency that a rule saved when it was last applied and measured, by its name.
        context: as `context_features` returns it.
    """
    return {
        "node_attributes": _node_attributes(choices, limits.max_nodes),
        "candidate_family": _families(choices, limits.max_candidates),
        "candidate_details": _details(choices, limits.max_candidates, effects),
        "context": context,
    }


def context_features(
    deployment: Deployment, graph: Graph, steps_left: float, budget_left: float, device: str = ""
) -> NDArray[np.float32]:
    """Return the entries `CONTEXT` of an observation.

    Args:
        device: name of the hardware, as `device_name` returns it; by default that of this machine.
    """
    cuda = deployment.provider == "cuda"
    known = frozenset() if cuda else instruction_sets(device or device_name("cpu"))
    block = _block(known, device) if deployment.provider == "cpu" else 0
    values = [
        log2(1 + deployment.threads) / 8, float(cuda), block / 16,
        log2(1 + available_cores()) / 8, *(float(name in known) for name in INSTRUCTIONS),
        max(0.0, steps_left), max(0.0, budget_left),
        *(float(name in graph.disabled_optimizers) for name in OPTIMIZERS),
    ]  # fmt: skip
    assert len(values) == len(CONTEXT)
    return np.array(values, dtype=np.float32)


def _block(known: frozenset[str], device: str) -> int:
    """Return the block of the blocked layout: of this machine's processor, or of one with known instruction sets."""
    if not device:
        return block_size()
    return 16 if "avx512f" in known else 8 if "avx2" in known else block_size()


def _node_attributes(choices: Choices, most: int) -> NDArray[np.float32]:
    rows = [choices.graph.rows, *(mark.entries("rows")[:, 0] for mark in choices.shown)]
    found = NODES.attributes[np.concatenate(rows)]
    repeats = [np.ones(choices.graph.count), *(mark.row_repeats() for mark in choices.shown)]
    found[:, REPEATS] = np.log2(np.concatenate(repeats)) / 8
    padded = np.zeros((most, found.shape[1]), dtype=np.float32)
    padded[: len(found)] = found
    return padded


def _families(choices: Choices, most: int) -> NDArray[np.int32]:
    known = family_of_rules()
    head = [
        _DEPLOYMENT if one.kind == "deployment" else known.get(one.rule, UNKNOWN) for one in choices.candidates.head
    ]
    tail = [known.get(site.rule.name, UNKNOWN) for site in choices.candidates.sites]
    used = [*head, *tail]
    return np.array([*used, *[PADDING] * (most - len(used)), NO_OP], dtype=np.int32)


def _details(choices: Choices, most: int, effects: Mapping[str, float]) -> NDArray[np.float32]:
    rules: Sequence[str] = choices.candidates.rules
    details = np.zeros((most + 1, len(CANDIDATE_DETAILS)), dtype=np.float32)
    if not rules:
        return details
    total = float(NODES.seconds[choices.graph.rows].sum()) or 1.0
    added = np.array([mark.added_s for mark in choices.footprints]) * choices.sites
    removed = np.array([mark.removed_s for mark in choices.footprints]) * choices.sites
    count = len(rules)
    details[:count, 0] = np.clip(removed / total, 0.0, 1.0)
    details[:count, 1] = np.clip((added - removed) / total, -1.0, 1.0)
    details[:count, 2] = [float(rule in effects) for rule in rules]
    details[:count, 3] = np.clip([effects.get(rule, 0.0) for rule in rules], -1.0, 1.0)
    return details
