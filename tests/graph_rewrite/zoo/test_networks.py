"""The zoo's architectures: output shapes, masks, padding, and source files that do not depend on each other."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graph_rewrite import zoo
from graph_rewrite.zoo.architectures.nasnet import SameConv2d, _average, _maximum
from graph_rewrite.zoo.registry import ARCHITECTURES, FURTHER, configure
from tests.graph_rewrite.zoo.networks import TINY_BERT, run_onnx, run_torch, small_network
from tests.small_models import SMALL


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vit", (2, 10)), ("dalle", (2, 16, 100)), ("transformer-transducer", (2, 16, 8, 50)), ("nasrnn", (2, 32)),
        ("mobilenet-v2", (2, 10)), ("resnet18", (2, 10)), ("resnet50", (2, 10)), ("inception-v3", (2, 10)),
        ("nasnet-a", (2, 10)), ("vgg19", (2, 10)), ("csrnet", (2, 1, 8, 8)), ("resnet3d18", (2, 10)),
    ],
)  # fmt: skip
def test_output_shapes(name: str, shape: tuple[int, ...]) -> None:
    inputs = zoo.example_inputs(name, **{**SMALL[name], "batch": 2})
    assert run_torch(small_network(name), inputs).shape == shape


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
    # One row of ones with stride 2, size 6, kernel 3: windows start at 0, 2 and 4; one zero is added on the right.
    convolution = SameConv2d(1, 3, 2)
    x = torch.arange(6.0).expand(1, 1, 6, 6)
    with torch.no_grad():
        convolution.weight.zero_()
        convolution.weight[..., 0, 0] = 1
        assert convolution(x)[0, 0, 0].tolist() == [0, 2, 4]
    assert _maximum(x)[0, 0, 0].tolist() == [2, 4, 5]
    assert _average(x, 2)[0, 0, 0].tolist() == [1, 3, 4.5]


def test_masked_tokens_have_no_influence() -> None:
    path = zoo.export("bert", **TINY_BERT, attention_mask=1)
    mask = np.ones((1, 16), np.int64)
    mask[:, 10:] = 0
    ids = zoo.example_inputs("bert", **TINY_BERT)["input_ids"]
    other = ids.copy()
    other[:, 10:] = (ids[:, 10:] + 1) % 100
    first, second = (run_onnx(path, {"input_ids": x, "attention_mask": mask})[:, :10] for x in (ids, other))
    np.testing.assert_array_equal(first, second)


def test_omitted_mask_and_types_are_ones_and_zeros() -> None:
    inputs = zoo.example_inputs("bert", **TINY_BERT)
    implicit = run_onnx(zoo.export("bert", **TINY_BERT), inputs)
    ones, zeros = np.ones((1, 16), np.int64), np.zeros((1, 16), np.int64)
    path = zoo.export("bert", **TINY_BERT, attention_mask=1, token_type_ids=1)
    explicit = run_onnx(path, {**inputs, "attention_mask": ones, "token_type_ids": zeros})
    # The two networks are calibrated on different token types and masks, so only nearly the same.
    assert np.corrcoef(implicit.ravel(), explicit.ravel())[0, 1] > 0.9


def test_later_tokens_have_no_influence_in_causal_models() -> None:
    ids = zoo.example_inputs("dalle", **SMALL["dalle"])["input_ids"]
    other = ids.copy()
    other[:, 10:] = (ids[:, 10:] + 1) % 100
    first, second = (run_torch(small_network("dalle"), {"input_ids": x})[:, :10] for x in (ids, other))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)


def test_other_lengths_than_the_configured_one_give_the_same_function() -> None:
    # Masks and positions are constants for the configured length and computed for others, as in calibration.
    short = zoo.build("dalle", **{**SMALL["dalle"], "seq_len": 8})
    inputs = zoo.example_inputs("dalle", **SMALL["dalle"])
    np.testing.assert_allclose(run_torch(short, inputs), run_torch(small_network("dalle"), inputs), rtol=0, atol=1e-5)


def test_networks_import_nothing_from_each_other() -> None:
    # So the digest in a file's name covers all source that decides what is exported.
    entries = [*ARCHITECTURES.values(), *FURTHER.values()]
    modules = {f"graph_rewrite.zoo.{entry.package}.{entry.module}" for entry in entries}
    for module in modules:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & (modules - {module}), module


def test_an_edit_of_one_network_leaves_the_files_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read, touched = Path.read_bytes, "vgg.py"

    def edited(path: Path) -> bytes:
        return read(path) + (b"# edited" if path.name == touched else b"")

    def digests() -> dict[str, Any]:
        zoo._source_digest.cache_clear()
        return {entry.module: zoo._source_digest(entry) for entry in (*ARCHITECTURES.values(), *FURTHER.values())}

    before = digests()
    monkeypatch.setattr(Path, "read_bytes", edited)
    further = {entry.module for entry in FURTHER.values()}
    changed = {"vgg.py": {"vgg"}, "swin.py": {"swin"}, "configs.py": further}
    for touched in changed:
        assert {module for module, digest in digests().items() if digest != before[module]} == changed[touched]
    for touched in ("weights.py", "layers.py", "common.py", "images.py", "building.py", "exporter.py"):
        assert all(digest != before[module] for module, digest in digests().items()), touched
    for touched in ("__init__.py", "disk_cache.py", "registry.py"):
        assert digests() == before, touched
    monkeypatch.undo()
    assert digests() == before
