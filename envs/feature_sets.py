"""Feature sets: what an observation holds. `plain` is the set of the policies that ship; `full` adds entries to it.

A policy records the set that it was trained with. What a set means never changes: another meaning is another set.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from gymnasium import spaces

from envs.attributes import NODE_ATTRIBUTES
from envs.observation import ObservationLimits, feature_sizes
from graph_rewrite.rules.registry import families
from graph_rewrite.runtime import OPTIMIZERS

FeatureSet = Literal["plain", "full"]

CANDIDATE_DETAILS = ("time_share", "predicted_change", "measured", "measured_saving")
"""Columns of `candidate_details`; times are nominal (`envs.features.NOMINAL`).

time_share: share of the graph's time that the nodes take which all sites remove, 0..1; predicted_change: time of the
nodes that all sites add less that of those they remove, relative to the graph's, within -1..1; measured: 1 where the
rule was applied before in this episode, with a measurement right before and after it; measured_saving: share of the
original's latency that it saved the last time, within -1..1.
"""

INSTRUCTIONS = ("avx_vnni", "avx512_fp16", "amx_tile")
"""Instruction sets that tell kinds of processors apart on which rewrites pay differently."""
CONTEXT = (
    "threads", "cuda", "block", "cores", *INSTRUCTIONS, "steps_left", "budget_left",
    *(f"refused {name}" for name in OPTIMIZERS),
)  # fmt: skip
"""Entries of `context`.

threads: log2(1 + threads) / 8; cuda: 1 for the provider CUDA; block: channels in a block of ONNX Runtime's layout / 16
(AVX-512 has 16, AVX2 8); cores: log2(1 + cores that this process may use) / 8; `INSTRUCTIONS`: 1 for each that
the processor has, 0 with CUDA; steps_left: share of the steps that
`step` counts; budget_left: share of the caller's budget (`EpisodeEnv.budget_left`), 1 until it is set; refused: 1 for
each optimiser of ONNX Runtime that is refused.
"""


@cache
def family_vocabulary() -> tuple[str, ...]:
    """Return the names of all families of rules, in the order of their indices: padding, unknown, No-Op, deployment
    choices, then those of rules by name."""
    return ("<padding>", "<unknown>", "<no-op>", "<deployment>", *sorted(families()))


@cache
def family_of_rules() -> dict[str, int]:
    """Return the index of the family of each rule, by its name."""
    number = {family: index for index, family in enumerate(family_vocabulary())}
    return {rule.name: number[family] for family, rules in families().items() for rule in rules}


def feature_widths(features: FeatureSet = "plain") -> dict[str, int]:
    """Return the widths of what an observation holds, by which a policy is checked against it."""
    if features == "plain":
        return feature_sizes()
    return {
        **feature_sizes(), "attributes": len(NODE_ATTRIBUTES), "details": len(CANDIDATE_DETAILS),
        "context": len(CONTEXT), "families": len(family_vocabulary()),
    }  # fmt: skip


def observation_space(limits: ObservationLimits, features: FeatureSet = "plain") -> spaces.Dict:
    """Return the observation space of a feature set."""
    space = limits.space()
    if features == "plain":
        return space
    actions, nodes = limits.max_candidates + 1, limits.max_nodes
    return spaces.Dict(
        {
            **space.spaces,
            "node_attributes": spaces.Box(0.0, np.inf, (nodes, len(NODE_ATTRIBUTES)), np.float32),
            "candidate_family": spaces.Box(0, len(family_vocabulary()) - 1, (actions,), np.int32),
            "candidate_details": spaces.Box(-1.0, 1.0, (actions, len(CANDIDATE_DETAILS)), np.float32),
            "context": spaces.Box(0.0, np.inf, (len(CONTEXT),), np.float32),
        }
    )
