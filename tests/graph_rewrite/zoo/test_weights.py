"""Weights of the zoo's networks: seeded, calibrated, and not degenerate."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from graph_rewrite import zoo
from graph_rewrite.zoo.architectures import weights
from graph_rewrite.zoo.architectures.layers import SelfAttention
from tests.graph_rewrite.zoo.networks import HELD_OUT, TINY_BERT, activation_scales, run_torch, small_network
from tests.small_models import SMALL

CLOSELY_TESTED = ("bert", "bert-tiny", "squeezenet", "resnext50")


@pytest.mark.parametrize("name", CLOSELY_TESTED)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_activations_keep_unit_scale_and_depend_on_the_input(name: str, seed: int) -> None:
    # Over several held-out inputs at once: one small image has 9 positions in the last layers, too few for a scale. And
    # at the sequence length of the calibration: attention over half as many tokens has outputs 1.4 times as large.
    params = {**SMALL[name], "seed": seed, "batch": 32}
    if name == "bert":
        params["seq_len"] = params["positions"]
    network = zoo.build(name, **params)
    scales: dict[str, float] = {}

    def record(path: str, module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scales[path] = float(output.std()) / float(getattr(module, "output_std", 1.0))

    for path, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.LayerNorm | nn.BatchNorm2d):
            module.register_forward_hook(partial(record, path))
    outputs = run_torch(network, zoo.example_inputs(name, input_seed=100, **params))
    off_scale = {path: scale for path, scale in scales.items() if not 0.7 < scale < 1.4}
    assert not off_scale
    assert outputs.std() > 0.05
    # The result for one input must not pass for that of another.
    assert outputs.std(axis=0).mean() / outputs.std() > 0.05


@pytest.mark.parametrize("name", sorted(SMALL.keys() - {*CLOSELY_TESTED}))
def test_activations_are_alive_and_depend_on_the_input(name: str) -> None:
    params = {**SMALL[name], "batch": HELD_OUT}
    if name == "transformer-transducer":
        params |= {"seq_len": 128, "labels": 32, "batch": 4}  # attention over fewer tokens has larger outputs
    scales, output = activation_scales(small_network(name), zoo.example_inputs(name, input_seed=100, **params))
    # Small images leave few positions for the statistics of the last layers.
    assert not {path: scale for path, scale in scales.items() if not 0.5 < scale < 2}
    assert 0.05 < output.std() < 20
    assert output.std(axis=0).mean() / output.std() > 0.05  # one input must not pass for another


@pytest.mark.parametrize("seq_len", [64, 256, 384])
def test_bert_is_not_degenerate_at_other_sequence_lengths(seq_len: int) -> None:
    params = {"layers": 4, "hidden": 64, "heads": 2, "vocab": 1000, "batch": 4, "seq_len": seq_len}
    outputs = run_torch(zoo.build("bert", **params), zoo.example_inputs("bert", input_seed=100, **params))
    assert 0.7 < outputs.std() < 1.4
    assert outputs.std(axis=0).mean() > 0.3  # over inputs
    assert outputs.std(axis=1).mean() > 0.3  # over the tokens of a sequence


@pytest.mark.parametrize("layers", [2, 8])
def test_softmax_is_neither_uniform_nor_one_hot(layers: int) -> None:
    params = {"layers": layers, "hidden": 128, "heads": 2, "vocab": 1000}
    network = zoo.build("bert", **params)
    scores: list[Tensor] = []

    def record(attention: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        assert isinstance(attention, SelfAttention)
        query, key = (attention._split_heads(layer(inputs[0])) for layer in (attention.query, attention.key))
        scores.append(query @ key.transpose(2, 3) * attention.head_size**-0.5)

    for module in network.modules():
        if isinstance(module, SelfAttention):
            module.register_forward_hook(record)
    run_torch(network, zoo.example_inputs("bert", input_seed=7, **params))
    assert len(scores) == layers
    for layer_scores in scores:
        assert 0.5 < float(layer_scores.std()) < 2.0
        largest = layer_scores.softmax(dim=-1).amax(dim=-1).mean()
        assert 2 / 128 < float(largest) < 0.5


@pytest.mark.parametrize("name", CLOSELY_TESTED)
def test_biases_and_gains_are_not_trivial(name: str) -> None:
    for path, module in zoo.build(name, **SMALL[name]).named_modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            assert float(module.weight.detach().std()) > 0.01, path
        if getattr(module, "bias", None) is not None:
            assert float(module.bias.detach().std()) > 0.03, path


@pytest.mark.parametrize("name", SMALL)
def test_seeds_decide_the_weights_and_the_batch_does_not(name: str) -> None:
    params = SMALL[name]
    reference = zoo.build(name, **params).state_dict()
    same = zoo.build(name, **{**params, "batch": 3}).state_dict()
    other = zoo.build(name, **{**params, "seed": 1}).state_dict()
    for key, value in reference.items():
        assert torch.equal(value, same[key]), key
    changed = [key for key, value in reference.items() if not torch.equal(value, other[key])]
    assert len(changed) == sum(1 for key in reference if not key.endswith("num_batches_tracked"))


def test_shared_weights_are_calibrated_at_their_first_use() -> None:
    params = {**SMALL["nasrnn"], "steps": 4, "shared": 1}
    network = zoo.build("nasrnn", **params)
    assert zoo.parameter_count("nasrnn", **params) == 16 * 32**2
    _, output = activation_scales(network, zoo.example_inputs("nasrnn", **{**params, "batch": HELD_OUT}))
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


def test_bert_has_the_same_weights_at_another_sequence_length() -> None:
    short, long = (zoo.build("bert", **{**TINY_BERT, "seq_len": seq_len}).state_dict() for seq_len in (8, 32))
    assert all(torch.equal(value, long[key]) for key, value in short.items())


def test_building_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    zoo.build("bert", **TINY_BERT)
    assert torch.equal(torch.rand(1), expected)


def test_layers_without_a_rule_are_refused() -> None:
    with pytest.raises(TypeError, match="no rule to initialise GRU at '0'"):
        weights.initialise(nn.Sequential(nn.GRU(2, 2)), seed=0)


def test_layers_with_constant_outputs_are_refused() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.first(x * 0)
            return output

    with pytest.raises(ValueError, match="cannot calibrate layer 'first'"):
        weights.calibrate(Network(), {"x": torch.ones(2, 4)})
