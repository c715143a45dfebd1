"""Names and parameters of the zoo's models: published sizes, standard inputs, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import zoo
from graph_rewrite.zoo.configs import images as image_configs
from graph_rewrite.zoo.registry import configure

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("vgg19", 143.67), ("csrnet", 16.26), ("resnet3d18", 33.37), ("resnet18", 11.69), ("resnet50", 25.56),
        ("inception-v3", 23.83), ("nasnet-a", 88.75), ("vit", 86.57), ("mobilenet-v2", 3.50), ("dalle", 123.79),
        ("transformer-transducer", 64.62), ("nasrnn", 20.97), ("bert", 108.89), ("bert-tiny", 4.37),
        ("squeezenet", 1.24), ("resnext50", 25.03),
        ("densenet121", 7.98), ("mobilenet-v3-large", 5.48), ("efficientnet-b0", 5.29), ("swin-t", 28.29),
        ("convnext-t", 28.59),
    ],
)  # fmt: skip
def test_parameter_counts_are_the_published_ones(name: str, millions: float) -> None:
    assert round(zoo.parameter_count(name) / 1e6, 2) == millions


def test_defaults_name_the_published_shapes() -> None:
    assert zoo.defaults("bert") | {"layers": 12, "hidden": 768, "heads": 12, "seq_len": 128} == zoo.defaults("bert")
    assert zoo.defaults("bert-tiny") | {"layers": 2, "hidden": 128, "heads": 2} == zoo.defaults("bert-tiny")
    assert zoo.defaults("resnext50")["image_size"] == 224


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
    ("name", "params", "message"),
    [
        ("brt", {}, "unknown model 'brt' .did you mean 'bert'.*bert-tiny, vit, .*resnet3d18"),
        ("bert", {"layer": 2}, "unknown parameter 'layer' .*did you mean 'layers'.*seq_len=128"),
        ("squeezenet", {"layers": 2}, "unknown parameter 'layers' of model 'squeezenet'.*image_size=224"),
        ("bert", {"layers": 0}, "model 'bert': layers must be at least 1, got 0"),
        ("bert", {"layers": "two"}, "layers must be an integer, got 'two'"),
        ("bert", {"layers": 2.0}, "layers must be an integer, got 2.0"),
        ("bert", {"seed": -1}, "seed must be at least 0"),
        ("bert", {"hidden": 100}, "hidden must be a multiple of heads, got hidden=100 and heads=12"),
        ("bert", {"seq_len": 1024}, "seq_len=1024 exceeds positions=512"),
        ("bert", {"attention_mask": 2}, "attention_mask must be between 0 and 1"),
        ("resnext50", {"image_size": 16}, "image_size must be at least 32"),
    ],
)
def test_bad_names_and_parameters_are_refused(name: str, params: dict[str, Any], message: str) -> None:
    for function in (zoo.export, zoo.build, zoo.parameter_count, zoo.example_inputs):
        with pytest.raises(ValueError, match=message):
            function(name, **params)


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
        ("swin-t", {"size": 256}, "image_size=256 is not a multiple of 32 windows of 7"),
        ("swin-t", {"heads": 5}, "hidden must be a multiple of heads, got hidden=96 and heads=5"),
        ("mobilenet-v3-large", {"blocks": 16}, "blocks must be between 1 and 15, got 16"),
        ("vgg19", {"size": 64, "image_size": 64}, "image_size of model 'vgg19' is given twice"),
        ("bert", {"size": 64}, "unknown parameter 'size' of model 'bert'"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(name: str, params: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure(name, params)


def test_unknown_model_has_no_defaults() -> None:
    with pytest.raises(ValueError, match="the zoo has bert"):
        zoo.defaults("vgg")


@given(layers=st.integers(1, 99), seq_len=st.integers(1, 512))
@settings(deadline=None)
def test_parameters_may_be_the_strings_of_a_uri(layers: int, seq_len: int) -> None:
    numbers = configure("bert", {"layers": layers, "seq_len": seq_len})
    assert configure("bert", {"layers": str(layers), "seq_len": str(seq_len)}) == numbers


def test_size_is_the_image_size() -> None:
    assert configure("resnet18", {"size": "96"}) == configure("resnet18", {"image_size": 96})


@pytest.mark.parametrize(("percent", "expected"), [(100, 35), (50, 16), (1, 8), (200, 72)])
def test_channels_in_percent(percent: int, expected: int) -> None:
    assert image_configs.channels(35, percent) == expected


def test_page_lists_every_model_with_its_parameters() -> None:
    page = (ROOT / "docs" / "reference" / "zoo.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \|[^|]*\| ([\d.]+) \|", page, re.MULTILINE))
    names = [*zoo.names(), *zoo.further_names()]
    assert rows == {name: f"{zoo.parameter_count(name) / 1e6:.2f}" for name in names}


@pytest.mark.parametrize(("uri", "name", "family"), [
    ("zoo://resnet50?stage3=2", "resnet50", "resnext"), ("bert-tiny", "bert-tiny", "bert"),
    ("file:model.onnx", "file:model.onnx", ""), ("", "", ""),
])  # fmt: skip
def test_a_uri_names_a_model_and_its_architecture(uri: str, name: str, family: str) -> None:
    assert zoo.name_in(uri) == name
    assert zoo.family_of(uri) == family
