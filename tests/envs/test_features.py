"""Rows of operators and shapes, the vocabularies."""

from __future__ import annotations

import math
from typing import Any

import pytest
from onnx import TensorProto

from envs.feature_sets import CONTEXT
from envs.features import EDGE_FEATURES, NODE_FEATURES, NODES, SHAPES, NodeTable, ShapeTable
from envs.graph_rewrite.details import context_features
from envs.vocabulary import CANDIDATE, OPERATORS, UNKNOWN, operator_index, operator_vocabulary, rule_vocabulary
from graph_rewrite import Node, TensorType, load
from graph_rewrite.latency import OPTIMIZERS, Deployment
from graph_rewrite.rules import all_rules
from tests.graph_rewrite.sample_models import parsed


def floats(*shape: int) -> TensorType:
    return TensorType(TensorProto.FLOAT, shape)


def node(op: str, domain: str = "", **attrs: Any) -> Node:
    return Node(0, op, [], [], attrs, domain)


def test_node_row() -> None:
    table = NodeTable()
    inputs = ((floats(2, 3), False), None, (floats(3, 4), True))
    row = table.row(node("MatMul"), inputs, (floats(2, 4),))
    features = dict(zip(NODE_FEATURES, table.features[row].tolist(), strict=True))
    assert features["elements"] == pytest.approx(math.log2(9) / 32)
    assert features["constant_bytes"] == pytest.approx(math.log2(1 + 48) / 32)
    assert features["moved_bytes"] == pytest.approx(math.log2(1 + 24 + 32) / 32)
    assert (features["inputs"], features["outputs"], features["rank"]) == (2 / 8, 1 / 8, 2 / 8)
    assert (features["opaque"], features["replacement"], features["head"]) == (0, 0, 0)
    assert operator_vocabulary()[table.operators[row]] == "ai.onnx::MatMul"


def test_equal_operators_share_a_row_and_others_do_not() -> None:
    table = NodeTable()
    inputs = ((floats(2, 3), False),)
    row = table.row(node("Transpose", perm=(1, 0)), inputs, (floats(3, 2),))
    assert table.row(node("Transpose", perm=(1, 0)), inputs, (floats(3, 2),)) == row
    assert table.row(node("Transpose", perm=(0, 1)), inputs, (floats(3, 2),)) != row
    assert table.row(node("Transpose", perm=(1, 0)), ((floats(2, 3), True),), (floats(3, 2),)) != row


def test_unknown_types_give_a_row() -> None:
    row = NODES.row(node("Loop"), ((None, False),), (None,), opaque=True)
    assert NODES.features[row, NODE_FEATURES.index("opaque")] == 1
    shape = SHAPES.row(None)
    assert SHAPES.rows[shape].tolist() == [0] * EDGE_FEATURES


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        ((), [0, 0, 0, 0]),
        ((5,), [0, 0, 0, 5]),
        ((1, 3, 256, 256), [1, 3, 256, 256]),
        ((2, 3, 4, 5, 6), [6, 4, 5, 6]),
    ],
)
def test_shape_row_is_that_of_the_paper(shape: tuple[int, ...], row: list[int]) -> None:
    table = ShapeTable()
    number = table.row(floats(*shape))
    assert (table.rows[number] * 4096).tolist() == row


def test_tables_grow() -> None:
    table = ShapeTable()
    rows = [table.row(floats(i)) for i in range(1000)]
    assert rows == list(range(1000))
    assert table.rows[999, 3] * 4096 == 999


def test_operator_vocabulary() -> None:
    names = operator_vocabulary()
    assert len(set(names)) == len(names) == CANDIDATE + 1
    assert names[operator_index("com.microsoft", "FusedMatMul")] == "com.microsoft::FusedMatMul"
    assert operator_index("my.domain", "MatMul") == UNKNOWN
    assert names[operator_index(*OPERATORS[-1])] == "com.microsoft.nchwc::Upsample"


def test_rule_vocabulary_has_every_rule_and_deployment_choice() -> None:
    names = rule_vocabulary()
    assert len(set(names)) == len(names)
    assert {rule.name for rule in all_rules()} <= set(names)
    assert {f"{verb} {name}" for verb in ("refuse", "keep") for name in OPTIMIZERS} <= set(names)


@pytest.mark.parametrize(("flags", "block"), [("avx2 fma", 8), ("avx2 fma avx512f", 16)])
def test_the_block_is_that_of_the_processor_that_was_timed(flags: str, block: int) -> None:
    found = context_features(
        Deployment(), load(parsed("(float[4] x) => (float[4] y) { y = Relu(x) }")), 1.0, 1.0, f"a processor [{flags}]"
    )
    assert found[CONTEXT.index("block")] == block / 16
