"""The feature set `full`: entries beyond `plain`, and what they say."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

from envs import GraphRewriteEnv
from envs.attributes import NODE_ATTRIBUTES, REPEATS, attribute_features
from envs.feature_sets import CANDIDATE_DETAILS, CONTEXT, INSTRUCTIONS, family_vocabulary, feature_widths
from envs.features import NODE_FEATURES
from envs.graph_rewrite.details import context_features
from envs.graph_rewrite.footprint import ALL_KINDS, site_footprint
from envs.vocabulary import rule_vocabulary
from graph_rewrite.ir.attributes import operator_signature
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency.device import device_name
from graph_rewrite.runtime import OPTIMIZERS
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import problem_of

FLOAT = TensorProto.FLOAT


def attributes_of(name: str, inputs: list[Any], op: str = "Conv", **attributes: Any) -> float:
    types = [None if entry is None else (TensorType(FLOAT, entry[0]), entry[1]) for entry in inputs]
    return attribute_features(op, "", attributes, types, (TensorType(FLOAT, (1, 8, 4, 4)),))[
        NODE_ATTRIBUTES.index(name)
    ]


def test_attributes_of_a_convolution() -> None:
    inputs = [((1, 4, 16, 16), False), ((8, 2, 3, 5), True), None]
    given: dict[str, Any] = {
        "kernel_shape": (3, 5), "strides": (2, 1), "dilations": (1, 4), "pads": (1, 2, 0, 2), "group": 2,
    }  # fmt: skip
    wanted = {
        "kernel_d": 0.0, "kernel_h": log2(4) / 8, "kernel_w": log2(6) / 8, "stride_h": 1 / 8,
        "stride_w": 0.0, "dilation_h": 0.0, "dilation_w": 2 / 8, "padding_h": log2(2) / 8,
        "padding_w": log2(5) / 8, "groups": 1 / 12, "weight_0": log2(9) / 16, "weight_1": log2(3) / 16,
        "weight_2": log2(4) / 16, "weight_3": log2(6) / 16, "constants": 1 / 8, "auto_padding": 0.0, "heads": 0.0,
        "axis": 0.0,
    }  # fmt: skip
    for name, value in wanted.items():
        assert attributes_of(name, inputs, **given) == pytest.approx(value), name
    assert attributes_of("auto_padding", inputs, auto_pad="SAME_UPPER") == 1.0


def test_attributes_of_other_operators() -> None:
    assert attributes_of("axis", [((2, 3, 4), False)], "Concat", axis=-1) == 3 / 8
    assert attributes_of("axis", [((2, 3, 4), False)], "Concat", axis=0) == 1 / 8
    assert attributes_of("kernel_w", [((1, 2, 8, 8), False)], "MaxPool", kernel_shape=(2, 3)) == 2 / 8
    assert attributes_of("heads", [], "Attention", q_num_heads=12) == pytest.approx(log2(13) / 8)
    assert attributes_of("transposed_b", [((2, 3), False), ((4, 3), True)], "Gemm", transB=1) == 1.0
    assert attributes_of("weight_0", [((), True)]) == 0.0
    odd = attribute_features("Own", "mine", {"strides": "many", "pads": (1,), "axis": "last", "group": -3}, (), ())
    assert odd == [0.0 if name != "axis" else odd[i] for i, name in enumerate(NODE_ATTRIBUTES)]


def test_defaults_count_as_none_whether_they_are_spelled_out_or_not() -> None:
    """Equal signatures share a row, so the order in which they are met must not matter."""
    inputs = ((TensorType(FLOAT, (1, 4, 8, 8)), False), (TensorType(FLOAT, (8, 4, 3, 3)), True))
    spelled_out = {
        "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1, "kernel_shape": (3, 3),
        "auto_pad": "NOTSET",
    }  # fmt: skip
    assert operator_signature("Conv", "", spelled_out) == operator_signature("Conv", "", {})
    assert attribute_features("Conv", "", spelled_out, inputs, ()) == attribute_features("Conv", "", {}, inputs, ())


def convolution(channels: int = 64) -> GraphRewriteEnv:
    weight = from_array(np.ones((channels, channels, 3, 3), np.float32), "w")
    node = make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    values = [make_tensor_value_info(name, FLOAT, (1, channels, 28, 28)) for name in "xy"]
    graph = make_graph([node], "convolution", values[:1], values[1:], [weight])
    model = make_model(graph, opset_imports=[make_opsetid("", 23)], ir_version=10)
    return GraphRewriteEnv(problem=problem_of(model), features="full")


def test_plain_entries_are_the_same_where_nothing_is_summarised(make_env: MakeEnv) -> None:
    plain, full = make_env(), make_env(features="full")
    mine, wanted = full.reset(seed=0)[0], plain.reset(seed=0)[0]
    for _ in range(4):
        assert full.observation_space.contains(mine)
        assert mine.keys() - wanted.keys() == {"node_attributes", "candidate_family", "candidate_details", "context"}
        assert all(np.array_equal(mine[name], wanted[name]) for name in wanted)
        action = int(np.flatnonzero(plain.action_masks())[0])
        mine, wanted = full.step(action)[0], plain.step(action)[0]


def test_gymnasium_accepts_it(make_env: MakeEnv) -> None:
    check_env(make_env(features="full"), skip_render_check=True)


def test_a_large_replacement_shows_all_kinds_of_its_nodes_and_how_many_there_are() -> None:
    env = convolution()
    observation, _ = env.reset()
    number = next(k for k, one in enumerate(env.candidates) if one.rule == "Winograd4x4")
    owned = observation["node_candidate"] == number + 1
    shown = owned & (observation["node_features"][:, NODE_FEATURES.index("head")] == 0)
    repeats = np.round(2.0 ** (8 * observation["node_attributes"][shown, REPEATS]))
    site = env.candidates[number].site
    whole, short = site_footprint(site, ALL_KINDS), site_footprint(site)
    assert whole.inserted > 200
    assert len(repeats) == whole.counts[0] - 1 < whole.inserted
    assert repeats.sum() == whole.inserted
    few = site_footprint(site, 5)
    assert few.counts[0] - 1 == 5
    assert sum(few.row_repeats()[1:]) < whole.inserted
    assert (whole.digest, whole.grown) == (short.digest, short.grown)


def test_candidates_have_a_family_a_share_of_the_time_and_a_predicted_change() -> None:
    env = convolution()
    observation, _ = env.reset()
    details = observation["candidate_details"]
    for k, one in enumerate(env.candidates):
        family = family_vocabulary()[observation["candidate_family"][k]]
        assert family == ("<deployment>" if one.kind == "deployment" else one.site.rule.family)
        if one.rule == "Winograd4x4":
            assert details[k, CANDIDATE_DETAILS.index("time_share")] == pytest.approx(1.0)
            assert -1.0 < details[k, CANDIDATE_DETAILS.index("predicted_change")] != 0.0
    assert family_vocabulary()[observation["candidate_family"][-1]] == "<no-op>"
    assert family_vocabulary()[observation["candidate_family"][len(env.candidates)]] == "<padding>"


def test_measured_effects_are_shown_for_the_rule(make_env: MakeEnv) -> None:
    env = make_env(features="full", feedback_every=1, granularity="site")
    env.reset()
    rules = [one.rule for one in env.candidates]
    action = rules.index("DropIdentity")
    observation, _, _, _, info = env.step(action)
    details = observation["candidate_details"]
    saved = 1.0 - 1.0 / info["speedup"]
    assert saved > 0.0
    for k, one in enumerate(env.candidates):
        same = one.rule == "DropIdentity"
        assert details[k, CANDIDATE_DETAILS.index("measured")] == float(same)
        assert details[k, CANDIDATE_DETAILS.index("measured_saving")] == pytest.approx(saved if same else 0.0)
    sparse = make_env(features="full", feedback_every=3, granularity="site")
    sparse.reset()
    observation, *_ = sparse.step(action)
    assert not observation["candidate_details"][:, CANDIDATE_DETAILS.index("measured")].any()


def test_the_context_shows_deployment_refusals_and_budget(make_env: MakeEnv) -> None:
    env = make_env(features="full", threads=3, horizon=8)
    observation, _ = env.reset()
    refusal = next(k for k, one in enumerate(env.candidates) if one.kind == "deployment")
    refused = env.candidates[refusal].rule.removeprefix("refuse ")

    def context(name: str) -> float:
        return float(observation["context"][CONTEXT.index(name)])

    assert context("threads") == pytest.approx(log2(4) / 8)
    assert (context("cuda"), context("steps_left"), context("budget_left")) == (0.0, 1.0, 1.0)
    assert context("cores") > 0.0
    assert sum(context(f"refused {name}") for name in OPTIMIZERS) == 0.0
    env.budget_left = 0.25
    observation, *_ = env.step(refusal)
    assert context("budget_left") == 0.25
    assert context("steps_left") == pytest.approx(7 / 8)
    assert [name for name in OPTIMIZERS if context(f"refused {name}")] == [refused]


def test_the_context_tells_kinds_of_processors_apart(make_env: MakeEnv) -> None:
    env = make_env(features="full")
    env.reset()
    first, deployment = CONTEXT.index(INSTRUCTIONS[0]), env.problem.deployment
    gpu = replace(deployment, provider="cuda")
    xeon = "Intel(R) Xeon(R) Processor, cpu family 6, model 167, stepping 1 [avx2 fma avx512_fp16 avx_vnni amx_tile]"
    for one, device, expected in (
        (deployment, "AMD EPYC, cpu family 25, model 17, stepping 1 [avx2 fma avx512f]", [0.0, 0.0, 0.0]),
        (deployment, "AMD EPYC, cpu family 26, model 2, stepping 1 [avx2 fma avx512f avx_vnni]", [1.0, 0.0, 0.0]),
        (deployment, xeon, [1.0, 1.0, 1.0]),
        (gpu, f"NVIDIA H100, 580.159 on {xeon}", [0.0, 0.0, 0.0]),
    ):
        context = context_features(one, env.graph, 1.0, 1.0, device)
        assert context[first : first + len(INSTRUCTIONS)].tolist() == expected
    here = context_features(deployment, env.graph, 1.0, 1.0)
    assert here.tolist() == context_features(deployment, env.graph, 1.0, 1.0, device_name("cpu")).tolist()


def test_a_recorded_state_names_the_set_unless_it_is_plain(make_env: MakeEnv) -> None:
    plain, full = make_env(), make_env(features="full")
    plain.reset()
    full.reset()
    assert "features" not in plain.state()["settings"]
    assert full.state()["settings"]["features"] == "full"
    with pytest.raises(ValueError, match="features was 'full', is 'plain'"):
        plain.restore(full.state())


def test_unknown_sets_are_refused(make_env: MakeEnv) -> None:
    with pytest.raises(ValueError, match="features must be one of plain, full, got 'some'"):
        make_env(features="some")


def test_widths_tell_the_sets_apart() -> None:
    assert feature_widths() == {"node": 10, "edge": 4, "candidate": 10, "globals": 8}
    assert feature_widths("full").items() > feature_widths().items()
    assert len(rule_vocabulary()) > len(family_vocabulary()) > 4
