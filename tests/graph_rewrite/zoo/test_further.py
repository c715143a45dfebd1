"""The further models at reduced sizes: PyTorch and the exported graph agree, and windows are what they should be."""

from __future__ import annotations

import onnx
import pytest
import torch

from graph_rewrite import load, zoo
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.task.models import open_model
from graph_rewrite.zoo.further.swin import from_windows, relative_positions, shift_mask, windows
from graph_rewrite.zoo.registry import FURTHER, configure
from tests.graph_rewrite.zoo.networks import relative_error, run_onnx, run_torch

SMALL: dict[str, dict[str, int]] = {
    "densenet121": {"image_size": 64, "growth": 8, "block1": 2, "block2": 2, "block3": 2, "block4": 2, "classes": 10},
    "mobilenet-v3-large": {"image_size": 32, "blocks": 8, "width_percent": 25, "classes": 10},
    "efficientnet-b0": {"image_size": 32, "repeats": 1, "width_percent": 25, "classes": 10},
    "swin-t": {
        "image_size": 64,
        "window": 2,
        "hidden": 16,
        "heads": 1,
        "stage2": 1,
        "stage3": 1,
        "stage4": 1,
        "classes": 10,
    },
    "convnext-t": {"image_size": 32, "width": 8, "stage1": 1, "stage2": 1, "stage3": 1, "stage4": 1, "classes": 10},
}


def test_further_models_are_none_of_those_in_tables() -> None:
    assert not set(zoo.names()) & set(zoo.further_names())
    assert set(SMALL) == set(zoo.further_names())


@pytest.mark.parametrize("name", SMALL)
def test_shapes_of_the_outputs(name: str) -> None:
    params = {**SMALL[name], "batch": 2}
    with torch.device("meta"):
        network = FURTHER[name].make(configure(name, params)).eval()
        assert network(torch.zeros(2, 3, params["image_size"], params["image_size"])).shape == (2, 10)


def test_export_agrees_with_pytorch_and_all_shapes_are_fixed() -> None:
    name = "swin-t"  # shifted windows, masks and tables of biases
    path = zoo.export(name, **SMALL[name])
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert all(
        size.HasField("dim_value") for value in model.graph.value_info for size in value.type.tensor_type.shape.dim
    )
    assert len(model.graph.value_info) >= len(model.graph.node) - 1
    inputs = zoo.example_inputs(name, input_seed=1, **SMALL[name])
    assert relative_error(run_onnx(path, inputs), run_torch(zoo.build(name, **SMALL[name]), inputs)) < 1e-4
    _, report = normalise(load(path))
    assert not report.notes
    uri = f"zoo://{name}?" + "&".join(f"{key}={value}" for key, value in SMALL[name].items())
    assert open_model(uri).path == path


def test_windows_and_their_reverse() -> None:
    image = torch.arange(2 * 4 * 6 * 3).view(2, 4, 6, 3)
    tiles = windows(image, 2)
    assert tiles.shape == (2 * 2 * 3, 4, 3)
    assert torch.equal(tiles[1], image[0, 0:2, 2:4].reshape(4, 3))
    assert torch.equal(from_windows(tiles, 2, 4, 6), image)


def test_shifted_windows_attend_to_neighbours_in_the_image_only() -> None:
    side, size, shift = 6, 3, 1
    rows = torch.arange(side).repeat_interleave(side).view(1, side, side, 1)
    columns = torch.arange(side).repeat(side).view(1, side, side, 1)
    positions = torch.cat((rows, columns), dim=-1).roll((-shift, -shift), (1, 2))
    tiles = windows(positions, size)
    distance = (tiles[:, :, None] - tiles[:, None, :]).abs().amax(dim=-1)
    assert torch.equal(shift_mask(side, size, shift)[:, 0] == 0, distance < size)


def test_one_bias_for_each_difference_of_positions() -> None:
    size = 3
    pairs = relative_positions(size).view(size * size, size * size)
    found: dict[tuple[int, int], int] = {}
    for first in range(size * size):
        for second in range(size * size):
            difference = (first // size - second // size, first % size - second % size)
            assert found.setdefault(difference, int(pairs[first, second])) == int(pairs[first, second])
    assert len(set(found.values())) == len(found) == (2 * size - 1) ** 2
