"""Every architecture of the zoo: published sizes, shapes, exports that agree with PyTorch, activations that are alive.

The smallest variants that keep every kind of block run in seconds. REWRITEGYM_FULL_ZOO=1 runs the published sizes as
well: minutes, and up to 8 GB of memory.
"""

from __future__ import annotations

import ast
import collections
import importlib.util
import os
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from graph_rewrite import Rewriter, load, save, zoo
from graph_rewrite.onnx_files.normalise import normalise
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.zoo.architectures import weights
from graph_rewrite.zoo.configs import images as image_configs
from graph_rewrite.zoo.configs.common import Inputs
from graph_rewrite.zoo.registry import ARCHITECTURES, configure

ROOT = Path(__file__).resolve().parents[3]

# The other models stand in test_zoo.py.
_SMALL: dict[str, dict[str, int]] = {
    "vit": {"image_size": 32, "patch": 8, "layers": 2, "hidden": 32, "heads": 2, "classes": 10},
    "dalle": {"layers": 2, "hidden": 32, "heads": 2, "seq_len": 16, "vocab": 100, "positions": 32},
    "transformer-transducer": {
        "layers": 2, "label_layers": 1, "hidden": 32, "heads": 2, "seq_len": 16, "labels": 8, "vocab": 50,
    },
    "nasrnn": {"hidden": 32, "steps": 2},
    "mobilenet-v2": {"image_size": 64, "repeats": 2, "width_percent": 25, "classes": 10},
    "resnet18": {"image_size": 64, "width": 16, "stage2": 1, "stage3": 1, "stage4": 1, "classes": 10},
    "resnet50": {
        "image_size": 32, "width_per_group": 8, "stage1": 1, "stage2": 2, "stage3": 1, "stage4": 1, "classes": 10,
    },
    "inception-v3": {
        "image_size": 107, "grid35": 1, "grid17": 1, "grid8": 1, "width_percent": 12, "classes": 10,
    },
    "nasnet-a": {"image_size": 71, "stages": 2, "cells": 1, "filters": 192, "stem": 8, "classes": 10},
    "vgg19": {"image_size": 64, "width": 8, "hidden": 64, "classes": 10},
    "csrnet": {"image_size": 64, "width": 8},
    "resnet3d18": {"image_size": 32, "frames": 4, "width": 8, "stage2": 1, "stage3": 1, "stage4": 1, "classes": 10},
}  # fmt: skip

_MEASURED = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.BatchNorm2d, nn.BatchNorm3d)
_HELD_OUT = 32
_full_size = pytest.mark.skipif("REWRITEGYM_FULL_ZOO" not in os.environ, reason="set REWRITEGYM_FULL_ZOO=1")


@cache
def _network(name: str) -> nn.Module:
    return zoo.build(name, **_SMALL[name])


def _run_torch(network: nn.Module, inputs: Inputs) -> np.ndarray:
    with torch.no_grad():
        output: Tensor = network(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    return np.asarray(output)


def _run_onnx(path: Path, inputs: Inputs) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    (output,) = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)
    return np.asarray(output)


def _relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def _scales(network: nn.Module, inputs: Inputs) -> tuple[dict[str, float], np.ndarray]:
    """Standard deviation of each layer's outputs, in multiples of what it is calibrated to; the network's output."""
    scales: dict[str, float] = {}

    def record(path: str, module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scales[path] = float(output.std()) / float(getattr(module, "output_std", 1.0))

    handles = [
        module.register_forward_hook(partial(record, path))
        for path, module in network.named_modules()
        if isinstance(module, _MEASURED)
    ]
    output = _run_torch(network, inputs)
    for handle in handles:
        handle.remove()
    return scales, output


def _operators(name: str) -> collections.Counter[str]:
    model = onnx.load(zoo.export(name, **_SMALL[name]), load_external_data=False)
    return collections.Counter(node.op_type for node in model.graph.node)


# --- what the architectures are ----------------------------------------------------------------------------------


def test_every_model_is_tested_here_or_in_the_other_file() -> None:
    assert set(_SMALL) | {"bert", "bert-tiny", "squeezenet", "resnext50"} == set(zoo.names())


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("vgg19", 143.67), ("csrnet", 16.26), ("resnet3d18", 33.37), ("resnet18", 11.69), ("resnet50", 25.56),
        ("inception-v3", 23.83), ("nasnet-a", 88.75), ("vit", 86.57), ("mobilenet-v2", 3.50), ("dalle", 123.79),
        ("transformer-transducer", 64.62), ("nasrnn", 20.97),
    ],
)  # fmt: skip
def test_parameter_counts_are_the_published_ones(name: str, millions: float) -> None:
    assert round(zoo.parameter_count(name) / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("vgg19", {"pixel_values": (1, 3, 224, 224)}),
        ("csrnet", {"pixel_values": (1, 3, 224, 224)}),
        ("resnet3d18", {"pixel_values": (1, 3, 16, 112, 112)}),
        ("inception-v3", {"pixel_values": (1, 3, 299, 299)}),
        ("nasnet-a", {"pixel_values": (1, 3, 331, 331)}),
        ("vit", {"pixel_values": (1, 3, 224, 224)}),
        ("dalle", {"input_ids": (1, 256)}),
        ("transformer-transducer", {"audio_features": (1, 128, 512), "label_ids": (1, 32)}),
        ("nasrnn", dict.fromkeys(("state", "x0", "x1", "x2", "x3", "x4"), (1, 512))),
    ],
)
def test_standard_inputs(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert {key: array.shape for key, array in zoo.example_inputs(name).items()} == shapes


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vit", (2, 10)), ("dalle", (2, 16, 100)), ("transformer-transducer", (2, 16, 8, 50)), ("nasrnn", (2, 32)),
        ("mobilenet-v2", (2, 10)), ("resnet18", (2, 10)), ("resnet50", (2, 10)), ("inception-v3", (2, 10)),
        ("nasnet-a", (2, 10)), ("vgg19", (2, 10)), ("csrnet", (2, 1, 8, 8)), ("resnet3d18", (2, 10)),
    ],
)  # fmt: skip
def test_output_shapes(name: str, shape: tuple[int, ...]) -> None:
    inputs = zoo.example_inputs(name, **{**_SMALL[name], "batch": 2})
    assert _run_torch(_network(name), inputs).shape == shape


def test_grids_of_the_published_image_sizes() -> None:
    # Figures of the papers: 35, 17 and 8 positions in Inception v3; 42, 21 and 11 in NASNet-A (large).
    sizes: dict[str, set[int]] = {}
    for name, params in (("inception-v3", {"width_percent": 1}), ("nasnet-a", {"cells": 1, "filters": 96, "stem": 1})):
        found = sizes.setdefault(name, set())
        with torch.device("meta"):
            network = ARCHITECTURES[name].make(configure(name, params)).eval()
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.register_forward_hook(lambda _module, _inputs, output, s=found: s.add(output.shape[-1]))
            network(torch.zeros(1, 3, *(configure(name, params).image_size,) * 2))  # type: ignore[attr-defined]
    assert sizes["inception-v3"] == {149, 147, 73, 71, 35, 17, 8}
    assert sizes["nasnet-a"] == {165, 83, 42, 21, 11}


def test_nasnet_pads_as_tensorflow_does_where_sizes_are_even() -> None:
    from graph_rewrite.zoo.architectures.nasnet import SameConv2d, _average, _maximum

    # One row of ones with stride 2, size 6, kernel 3: windows start at 0, 2 and 4; one zero is added on the right.
    convolution = SameConv2d(1, 3, 2)
    x = torch.arange(6.0).expand(1, 1, 6, 6)
    with torch.no_grad():
        convolution.weight.zero_()
        convolution.weight[..., 0, 0] = 1
        assert convolution(x)[0, 0, 0].tolist() == [0, 2, 4]
    assert _maximum(x)[0, 0, 0].tolist() == [2, 4, 5]
    assert _average(x, 2)[0, 0, 0].tolist() == [1, 3, 4.5]


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("vit", {"heads": 5}, "hidden must be a multiple of heads"),
        ("vit", {"size": 230}, "image_size=230 is not a multiple of patch=16"),
        ("nasnet-a", {"filters": 100}, "filters must be a multiple of 96, got 100"),
        ("inception-v3", {"size": 74}, "image_size must be at least 75, got 74"),
        ("dalle", {"seq_len": 2000}, "seq_len=2000 exceeds positions=1280"),
        ("transformer-transducer", {"hidden": 100}, "even and a multiple of heads, got 100"),
        ("nasrnn", {"shared": 2}, "shared must be between 0 and 1"),
        ("vgg19", {"size": 64, "image_size": 64}, "image_size of model 'vgg19' is given twice"),
        ("bert", {"size": 64}, "unknown parameter 'size' of model 'bert'"),
    ],
)
def test_bad_parameters_are_refused(name: str, params: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure(name, params)


def test_size_is_the_image_size() -> None:
    assert configure("resnet18", {"size": "96"}) == configure("resnet18", {"image_size": 96})


@pytest.mark.parametrize(("percent", "expected"), [(100, 35), (50, 16), (1, 8), (200, 72)])
def test_channels_in_percent(percent: int, expected: int) -> None:
    assert image_configs.channels(35, percent) == expected


# --- weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _SMALL)
def test_activations_are_alive_and_depend_on_the_input(name: str) -> None:
    params = {**_SMALL[name], "batch": _HELD_OUT}
    if name == "transformer-transducer":
        params |= {"seq_len": 128, "labels": 32, "batch": 4}  # attention over fewer tokens has larger outputs
    scales, output = _scales(_network(name), zoo.example_inputs(name, input_seed=100, **params))
    # Small images leave few positions for the statistics of the last layers.
    assert not {path: scale for path, scale in scales.items() if not 0.5 < scale < 2}
    assert 0.05 < output.std() < 20
    assert output.std(axis=0).mean() / output.std() > 0.05  # as in test_zoo.py


@pytest.mark.parametrize("name", _SMALL)
def test_seeds_decide_the_weights_and_the_batch_does_not(name: str) -> None:
    reference = _network(name).state_dict()
    same = zoo.build(name, **{**_SMALL[name], "batch": 3}).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in reference.items())
    other = zoo.build(name, **{**_SMALL[name], "seed": 1}).state_dict()
    assert [key for key, value in reference.items() if torch.equal(value, other[key])] == [
        key for key in reference if key.endswith("num_batches_tracked")
    ]


def test_shared_weights_are_calibrated_at_their_first_use() -> None:
    params = {**_SMALL["nasrnn"], "steps": 4, "shared": 1}
    network = zoo.build("nasrnn", **params)
    assert zoo.parameter_count("nasrnn", **params) == 16 * 32**2
    _, output = _scales(network, zoo.example_inputs("nasrnn", **{**params, "batch": _HELD_OUT}))
    assert 0.05 < output.std() < 1
    one_step = zoo.build("nasrnn", **{**params, "steps": 1}).state_dict()
    assert all(torch.equal(value, one_step[key]) for key, value in network.state_dict().items())


def test_layers_of_three_dimensions_are_calibrated() -> None:
    network = nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4))
    weights.initialise(network, seed=0)
    clips = torch.randn(4, 2, 5, 6, 7, generator=torch.Generator().manual_seed(0)) * 50 + 3

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, clips: Tensor) -> Tensor:
            output: Tensor = self.network(clips)
            return output

    weights.calibrate(Named(), {"clips": clips})
    with torch.no_grad():
        convolved = network[0](clips)
        assert float(convolved.std()) == pytest.approx(1, abs=2e-2)  # biases add a little
        assert convolved.mean(dim=(0, 2, 3, 4)).abs().max() < 0.5
        normalised = (network[1](convolved) - network[1].bias.view(-1, 1, 1, 1)) / network[1].weight.view(-1, 1, 1, 1)
        assert float(normalised.std()) == pytest.approx(1, abs=1e-2)


# --- the exported graphs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _SMALL)
def test_export_agrees_with_pytorch_and_is_optimised_and_saved(name: str, tmp_path: Path) -> None:
    path = zoo.export(name, **_SMALL[name])
    onnx.checker.check_model(str(path), full_check=True)
    inputs = zoo.example_inputs(name, input_seed=1, **_SMALL[name])
    expected = _run_torch(_network(name), inputs)
    assert _relative_error(_run_onnx(path, inputs), expected) < 1e-4

    graph, report = normalise(load(path))
    assert not report.notes
    (reference,) = run_graph(graph, inputs)
    assert _relative_error(reference, expected) < 1e-4
    rewriter = Rewriter()
    candidates = [candidate for candidate in rewriter.candidates(graph) if candidate.kind != "deployment"]
    assert candidates
    save(candidates[0].apply(), tmp_path / "rewritten.onnx")
    assert _relative_error(_run_onnx(tmp_path / "rewritten.onnx", inputs), expected) < 1e-4


@pytest.mark.parametrize(
    ("name", "left"), [("resnet18", 0), ("resnet3d18", 0), ("inception-v3", 0), ("mobilenet-v2", 0), ("nasnet-a", 3)]
)
def test_batch_norm_is_folded_after_convolutions(name: str, left: int) -> None:
    # NASNet's factorized reductions, one per stage and one in the stem, have it after a Concat.
    assert _operators(name)["BatchNormalization"] == left


def test_attention_is_exported_in_eager_form() -> None:
    assert _operators("vit") | {"Softmax": 2, "MatMul": 2 * 8, "Gelu": 2} == _operators("vit")
    dalle = _operators("dalle")
    assert dalle | {"Softmax": 2, "MatMul": 2 * 6 + 1, "Gelu": 2, "Split": 2} == dalle
    transducer = _operators("transformer-transducer")
    assert transducer | {"Softmax": 3, "MatMul": 3 * 8 + 3, "Tanh": 1} == transducer
    for operators in (_operators("vit"), dalle, transducer):
        assert {"IsNaN", "Where", "Attention", "Trilu", "Sin", "Range"}.isdisjoint(operators)


def test_nasrnn_is_the_graph_of_the_benchmark() -> None:
    gates = {"MatMul": 16, "Add": 8 + 3, "Mul": 4, "Relu": 2, "Sigmoid": 5, "Tanh": 8}
    assert _operators("nasrnn") == {op: 2 * count for op, count in gates.items()}


def test_later_tokens_have_no_influence_in_causal_models() -> None:
    ids = zoo.example_inputs("dalle", **_SMALL["dalle"])["input_ids"]
    other = ids.copy()
    other[:, 10:] = (ids[:, 10:] + 1) % 100
    first, second = (_run_torch(_network("dalle"), {"input_ids": x})[:, :10] for x in (ids, other))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)


def test_other_lengths_than_the_configured_one_give_the_same_function() -> None:
    # Masks and positions are constants for the configured length and computed for others, as in calibration.
    short = zoo.build("dalle", **{**_SMALL["dalle"], "seq_len": 8})
    inputs = zoo.example_inputs("dalle", **_SMALL["dalle"])
    np.testing.assert_allclose(_run_torch(short, inputs), _run_torch(_network("dalle"), inputs), rtol=0, atol=1e-5)


@_full_size
@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_full_size_agrees_with_pytorch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path))
    inputs = zoo.example_inputs(name, input_seed=100)
    scales, expected = _scales(zoo.build(name), inputs)
    assert all(0.05 < scale < 20 for scale in scales.values())
    assert 0.05 < expected.std() < 20
    assert _relative_error(_run_onnx(zoo.export(name), inputs), expected) < 1e-4


# --- the catalogue -----------------------------------------------------------------------------------------------


def test_networks_import_nothing_from_each_other() -> None:
    # So the digest in a file's name covers all source that decides what is exported.
    modules = {entry.module for entry in ARCHITECTURES.values()}
    for module in modules:
        spec = importlib.util.find_spec(f"graph_rewrite.zoo.architectures.{module}")
        assert spec is not None
        tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {f"graph_rewrite.zoo.architectures.{other}" for other in modules - {module}}, module


def test_an_edit_of_one_network_leaves_the_files_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read, touched = Path.read_bytes, "vgg.py"

    def edited(path: Path) -> bytes:
        return read(path) + (b"# edited" if path.name == touched else b"")

    def digests() -> dict[str, Any]:
        zoo._source_digest.cache_clear()
        return {entry.module: zoo._source_digest(entry.module) for entry in ARCHITECTURES.values()}

    before = digests()
    monkeypatch.setattr(Path, "read_bytes", edited)
    assert {module for module, digest in digests().items() if digest != before[module]} == {"vgg"}
    touched = "weights.py"
    assert all(digest != before[module] for module, digest in digests().items())
    monkeypatch.undo()
    assert digests() == before


def test_page_lists_every_model_with_its_parameters() -> None:
    page = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \|[^|]*\| ([\d.]+) \|", page, re.MULTILINE))
    assert rows == {name: f"{zoo.parameter_count(name) / 1e6:.2f}" for name in zoo.names()}
