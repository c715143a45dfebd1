"""Exported graphs: they agree with PyTorch, hold the operators that are expected, and can be rewritten.

The smallest variants that keep every kind of block run in seconds. REWRITEGYM_FULL_ZOO=1 runs the published sizes as
well: minutes, and up to 8 GB of memory.
"""

from __future__ import annotations

import collections
import os
from pathlib import Path

import onnx
import pytest

from graph_rewrite import Rewriter, load, save, zoo
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.operators.evaluation import run_graph
from tests.graph_rewrite.zoo.networks import (
    TINY_BERT,
    activation_scales,
    exported_operators,
    relative_error,
    run_onnx,
    run_torch,
    small_network,
)
from tests.small_models import SMALL


@pytest.mark.parametrize("name", SMALL)
def test_export_agrees_with_pytorch_and_is_optimised_and_saved(name: str, tmp_path: Path) -> None:
    path = zoo.export(name, **SMALL[name])
    onnx.checker.check_model(str(path), full_check=True)
    for seed in range(2):
        inputs = zoo.example_inputs(name, input_seed=seed, **SMALL[name])
        expected = run_torch(small_network(name), inputs)
        assert relative_error(run_onnx(path, inputs), expected) < 1e-4

    graph, report = normalise(load(path))
    assert not report.notes
    (reference,) = run_graph(graph, inputs)
    assert relative_error(reference, expected) < 1e-4
    rewriter = Rewriter()
    candidates = [candidate for candidate in rewriter.candidates(graph) if candidate.kind != "deployment"]
    assert candidates
    save(candidates[0].apply(), tmp_path / "rewritten.onnx")
    assert relative_error(run_onnx(tmp_path / "rewritten.onnx", inputs), expected) < 1e-4


@pytest.mark.parametrize("batch", [1, 3])
def test_bert_with_all_inputs_agrees_with_pytorch(batch: int) -> None:
    params = {**TINY_BERT, "attention_mask": 1, "token_type_ids": 1, "batch": batch}
    path = zoo.export("bert", **params)
    inputs = zoo.example_inputs("bert", **params)
    assert [value.name for value in onnx.load(path).graph.input] == list(inputs)
    assert list(inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert relative_error(run_onnx(path, inputs), run_torch(zoo.build("bert", **params), inputs)) < 1e-4


def test_bert_is_exported_in_eager_form() -> None:
    model = onnx.load(zoo.export("bert", **TINY_BERT))
    operators = collections.Counter(node.op_type for node in model.graph.node)
    assert operators["MatMul"] == 4 + 2 + 2  # projections, attention, feed-forward
    assert (operators["Softmax"], operators["Gelu"], operators["LayerNormalization"]) == (1, 1, 3)
    assert {"IsNaN", "Where", "Attention", "Gemm", "Constant"}.isdisjoint(operators)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]
    assert [value.name for value in model.graph.input] == ["input_ids"]
    assert [value.name for value in model.graph.output] == ["last_hidden_state"]


def test_attention_is_exported_in_eager_form() -> None:
    assert exported_operators("vit") | {"Softmax": 2, "MatMul": 2 * 8, "Gelu": 2} == exported_operators("vit")
    dalle = exported_operators("dalle")
    assert dalle | {"Softmax": 2, "MatMul": 2 * 6 + 1, "Gelu": 2, "Split": 2} == dalle
    transducer = exported_operators("transformer-transducer")
    assert transducer | {"Softmax": 3, "MatMul": 3 * 8 + 3, "Tanh": 1} == transducer
    for operators in (exported_operators("vit"), dalle, transducer):
        assert {"IsNaN", "Where", "Attention", "Trilu", "Sin", "Range"}.isdisjoint(operators)


def test_nasrnn_is_the_graph_of_the_benchmark() -> None:
    gates = {"MatMul": 16, "Add": 8 + 3, "Mul": 4, "Relu": 2, "Sigmoid": 5, "Tanh": 8}
    assert exported_operators("nasrnn") == {op: 2 * count for op, count in gates.items()}


def test_batch_norm_is_folded_and_local_paths_are_not_exported() -> None:
    path = zoo.export("resnext50", **SMALL["resnext50"])
    assert "BatchNormalization" not in {node.op_type for node in onnx.load(path).graph.node}
    assert b"stack_trace" not in path.read_bytes()


@pytest.mark.parametrize(
    ("name", "left"), [("resnet18", 0), ("resnet3d18", 0), ("inception-v3", 0), ("mobilenet-v2", 0), ("nasnet-a", 3)]
)
def test_batch_norm_is_folded_after_convolutions(name: str, left: int) -> None:
    # NASNet's factorized reductions, one per stage and one in the stem, have it after a Concat.
    assert exported_operators(name)["BatchNormalization"] == left


@pytest.mark.skipif("REWRITEGYM_FULL_ZOO" not in os.environ, reason="set REWRITEGYM_FULL_ZOO=1")
@pytest.mark.slow
@pytest.mark.parametrize("name", [*zoo.names(), *zoo.further_names()])
def test_full_size_agrees_with_pytorch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path))
    inputs = zoo.example_inputs(name, input_seed=100)
    scales, expected = activation_scales(zoo.build(name), inputs)
    assert all(0.05 < scale < 20 for scale in scales.values())
    assert 0.05 < expected.std() < 20
    assert relative_error(run_onnx(zoo.export(name), inputs), expected) < 1e-4
