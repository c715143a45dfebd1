"""The zoo: sizes, exports that agree with PyTorch, weights that are not degenerate, the cache, the command.

The models that came first are tested closely here, the others in test_zoo_models.py.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from graph_rewrite import zoo
from graph_rewrite.zoo import disk_cache, exporter
from graph_rewrite.zoo.__main__ import main
from graph_rewrite.zoo.architectures import weights
from graph_rewrite.zoo.architectures.layers import SelfAttention
from graph_rewrite.zoo.configs.common import Inputs
from graph_rewrite.zoo.registry import configure

_TINY_BERT = {"layers": 1, "hidden": 32, "heads": 2, "seq_len": 16, "vocab": 100, "positions": 32}
_SMALL = {
    "bert": {**_TINY_BERT, "batch": 2},
    "bert-tiny": {"vocab": 1000},
    "squeezenet": {"image_size": 64, "classes": 10},
    "resnext50": {"image_size": 64, "classes": 10, "stage1": 1, "stage2": 2, "stage3": 1, "stage4": 1},
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache").resolve()
        patch.setenv("REWRITEGYM_CACHE", str(folder))
        yield folder / "zoo"


def _run_onnx(path: Path, inputs: Inputs) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    (output,) = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)
    return np.asarray(output)


def _run_torch(network: nn.Module, inputs: Inputs) -> np.ndarray:
    with torch.no_grad():
        output: Tensor = network(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    return np.asarray(output)


def _relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


# --- what there is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "millions"), [("bert", 108.89), ("bert-tiny", 4.37), ("squeezenet", 1.24), ("resnext50", 25.03)]
)
def test_parameter_counts_are_the_published_ones(name: str, millions: float) -> None:
    assert zoo.parameter_count(name) / 1e6 == pytest.approx(millions, abs=0.01)


def test_defaults_name_the_published_shapes() -> None:
    assert zoo.defaults("bert") | {"layers": 12, "hidden": 768, "heads": 12, "seq_len": 128} == zoo.defaults("bert")
    assert zoo.defaults("bert-tiny") | {"layers": 2, "hidden": 128, "heads": 2} == zoo.defaults("bert-tiny")
    assert zoo.defaults("resnext50")["image_size"] == 224


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


def test_unknown_model_has_no_defaults() -> None:
    with pytest.raises(ValueError, match="the zoo has bert"):
        zoo.defaults("vgg")


@given(layers=st.integers(1, 99), seq_len=st.integers(1, 512))
@settings(deadline=None)
def test_parameters_may_be_the_strings_of_a_uri(layers: int, seq_len: int) -> None:
    numbers = configure("bert", {"layers": layers, "seq_len": seq_len})
    assert configure("bert", {"layers": str(layers), "seq_len": str(seq_len)}) == numbers


def test_command_lists_models_and_exports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listing = capsys.readouterr().out
    assert all(name in listing for name in zoo.names())
    assert "108.89 M" in listing
    assert main(["bert", *(f"{key}={value}" for key, value in _TINY_BERT.items())]) == 0
    assert Path(capsys.readouterr().out.strip()) == zoo.export("bert", **_TINY_BERT)
    assert main(["bert", "layers"]) == 2
    assert "name=value, got 'layers'" in capsys.readouterr().err


def test_help_names_the_program_as_it_was_called() -> None:
    for command in (["rewritegym", "zoo"], ["graph_rewrite.zoo"]):
        result = subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True, check=True)
        called = "rewritegym zoo" if len(command) > 1 else "python -m graph_rewrite.zoo"
        assert result.stdout.startswith(f"usage: {called} [-h]")


# --- the exported graphs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _SMALL)
def test_export_agrees_with_pytorch(name: str) -> None:
    params = _SMALL[name]
    path = zoo.export(name, **params)
    onnx.checker.check_model(str(path), full_check=True)
    network = zoo.build(name, **params)
    for seed in range(2):
        inputs = zoo.example_inputs(name, input_seed=seed, **params)
        assert _relative_error(_run_onnx(path, inputs), _run_torch(network, inputs)) < 1e-4


@pytest.mark.parametrize("batch", [1, 3])
def test_bert_with_all_inputs_agrees_with_pytorch(batch: int) -> None:
    params = {**_TINY_BERT, "attention_mask": 1, "token_type_ids": 1, "batch": batch}
    path = zoo.export("bert", **params)
    inputs = zoo.example_inputs("bert", **params)
    assert [value.name for value in onnx.load(path).graph.input] == list(inputs)
    assert list(inputs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert _relative_error(_run_onnx(path, inputs), _run_torch(zoo.build("bert", **params), inputs)) < 1e-4


def test_masked_tokens_have_no_influence() -> None:
    path = zoo.export("bert", **_TINY_BERT, attention_mask=1)
    mask = np.ones((1, 16), np.int64)
    mask[:, 10:] = 0
    ids = zoo.example_inputs("bert", **_TINY_BERT)["input_ids"]
    other = ids.copy()
    other[:, 10:] = (ids[:, 10:] + 1) % 100
    first, second = (_run_onnx(path, {"input_ids": x, "attention_mask": mask})[:, :10] for x in (ids, other))
    np.testing.assert_array_equal(first, second)


def test_omitted_mask_and_types_are_ones_and_zeros() -> None:
    inputs = zoo.example_inputs("bert", **_TINY_BERT)
    implicit = _run_onnx(zoo.export("bert", **_TINY_BERT), inputs)
    ones, zeros = np.ones((1, 16), np.int64), np.zeros((1, 16), np.int64)
    path = zoo.export("bert", **_TINY_BERT, attention_mask=1, token_type_ids=1)
    explicit = _run_onnx(path, {**inputs, "attention_mask": ones, "token_type_ids": zeros})
    # The two networks are calibrated on different token types and masks, so only nearly the same.
    assert np.corrcoef(implicit.ravel(), explicit.ravel())[0, 1] > 0.9


def test_bert_is_exported_in_eager_form() -> None:
    model = onnx.load(zoo.export("bert", **_TINY_BERT))
    operators = collections.Counter(node.op_type for node in model.graph.node)
    assert operators["MatMul"] == 4 + 2 + 2  # projections, attention, feed-forward
    assert (operators["Softmax"], operators["Gelu"], operators["LayerNormalization"]) == (1, 1, 3)
    assert {"IsNaN", "Where", "Attention", "Gemm", "Constant"}.isdisjoint(operators)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 20)]
    assert [value.name for value in model.graph.input] == ["input_ids"]
    assert [value.name for value in model.graph.output] == ["last_hidden_state"]


def test_batch_norm_is_folded_and_local_paths_are_not_exported() -> None:
    path = zoo.export("resnext50", **_SMALL["resnext50"])
    assert "BatchNormalization" not in {node.op_type for node in onnx.load(path).graph.node}
    assert b"stack_trace" not in path.read_bytes()


def test_large_weights_go_to_one_file_beside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_EXTERNAL_DATA_BYTES", 1000)
    params = {**_TINY_BERT, "seed": 5}
    path = zoo.export("bert", **params)
    data = path.with_name("model.onnx.data")
    assert data.stat().st_size > path.stat().st_size
    assert not path.is_symlink()
    assert data.stat().st_nlink == 1
    inputs = zoo.example_inputs("bert", **params)
    expected = _run_torch(zoo.build("bert", **params), inputs)
    assert _relative_error(_run_onnx(path, inputs), expected) < 1e-4
    data.write_bytes(data.read_bytes()[:-1])
    assert _relative_error(_run_onnx(zoo.export("bert", **params), inputs), expected) < 1e-4


# --- the weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _SMALL)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_activations_keep_unit_scale_and_depend_on_the_input(name: str, seed: int) -> None:
    # Over several held-out inputs at once: one small image has 9 positions in the last layers, too few for a scale. And
    # at the sequence length of the calibration: attention over half as many tokens has outputs 1.4 times as large.
    params = {**_SMALL[name], "seed": seed, "batch": 32}
    if name == "bert":
        params["seq_len"] = params["positions"]
    network = zoo.build(name, **params)
    scales: dict[str, float] = {}

    def record(path: str, module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scales[path] = float(output.std()) / float(getattr(module, "output_std", 1.0))

    for path, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.LayerNorm | nn.BatchNorm2d):
            module.register_forward_hook(partial(record, path))
    outputs = _run_torch(network, zoo.example_inputs(name, input_seed=100, **params))
    off_scale = {path: scale for path, scale in scales.items() if not 0.7 < scale < 1.4}
    assert not off_scale
    assert outputs.std() > 0.05
    # The result for one input must not pass for that of another.
    assert outputs.std(axis=0).mean() / outputs.std() > 0.05


@pytest.mark.parametrize("seq_len", [64, 256, 384])
def test_bert_is_not_degenerate_at_other_sequence_lengths(seq_len: int) -> None:
    params = {"layers": 4, "hidden": 64, "heads": 2, "vocab": 1000, "batch": 4, "seq_len": seq_len}
    outputs = _run_torch(zoo.build("bert", **params), zoo.example_inputs("bert", input_seed=100, **params))
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
    _run_torch(network, zoo.example_inputs("bert", input_seed=7, **params))
    assert len(scores) == layers
    for layer_scores in scores:
        assert 0.5 < float(layer_scores.std()) < 2.0
        largest = layer_scores.softmax(dim=-1).amax(dim=-1).mean()
        assert 2 / 128 < float(largest) < 0.5


@pytest.mark.parametrize("name", _SMALL)
def test_biases_and_gains_are_not_trivial(name: str) -> None:
    for path, module in zoo.build(name, **_SMALL[name]).named_modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
            assert float(module.weight.detach().std()) > 0.01, path
        if getattr(module, "bias", None) is not None:
            assert float(module.bias.detach().std()) > 0.03, path


@pytest.mark.parametrize("name", _SMALL)
def test_seeds_decide_the_weights_and_the_batch_does_not(name: str) -> None:
    params = _SMALL[name]
    reference = zoo.build(name, **params).state_dict()
    same = zoo.build(name, **{**params, "batch": 3}).state_dict()
    other = zoo.build(name, **{**params, "seed": 1}).state_dict()
    for key, value in reference.items():
        assert torch.equal(value, same[key]), key
    changed = [key for key, value in reference.items() if not torch.equal(value, other[key])]
    assert len(changed) == sum(1 for key in reference if not key.endswith("num_batches_tracked"))


def test_bert_has_the_same_weights_at_another_sequence_length() -> None:
    short, long = (zoo.build("bert", **{**_TINY_BERT, "seq_len": seq_len}).state_dict() for seq_len in (8, 32))
    assert all(torch.equal(value, long[key]) for key, value in short.items())


def test_building_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    zoo.build("bert", **_TINY_BERT)
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


# --- the cache ---------------------------------------------------------------------------------------------------


def test_second_export_is_a_cache_hit_without_pytorch(cache: Path) -> None:
    path = zoo.export("bert", **_TINY_BERT)
    assert path.parent.parent == cache
    before = path.stat()
    program = (
        f"import sys; from graph_rewrite import zoo; print(zoo.export('bert', **{_TINY_BERT!r}));"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (Path(result.stdout.strip()), result.stderr) == (path, "")
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_export_prints_nothing_and_is_reproducible(tmp_path: Path) -> None:
    path = zoo.export("bert", **_TINY_BERT)
    arguments = [f"{key}={value}" for key, value in _TINY_BERT.items()]
    command = [sys.executable, "-m", "graph_rewrite.zoo", "bert", *arguments]
    environment = {**os.environ, "REWRITEGYM_CACHE": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    again = Path(result.stdout.removesuffix("\n"))
    assert again == tmp_path.resolve() / "zoo" / path.parent.name / path.name
    assert result.stderr == ""
    assert again.read_bytes() == path.read_bytes()


def test_other_parameters_are_other_files() -> None:
    paths = {zoo.export("bert", **{**_TINY_BERT, **change}) for change in ({}, {"seq_len": 8}, {"seed": 1})}
    assert len(paths) == 3


@pytest.mark.parametrize(
    "damage", ["truncated", "missing", "no manifest", "manifest is not JSON", "manifest is a list"]
)
def test_damaged_entries_are_exported_again(damage: str) -> None:
    path = zoo.export("bert", **_TINY_BERT)
    content = path.read_bytes()
    manifest = path.with_name("manifest.json")
    if damage == "truncated":
        path.write_bytes(content[:-100])
    elif damage == "missing":
        path.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("[1]" if damage == "manifest is a list" else '{"files": ')
    assert zoo.export("bert", **_TINY_BERT) == path
    assert path.read_bytes() == content
    assert json.loads(manifest.read_text())["params"]["layers"] == 1


def test_failed_export_leaves_nothing_behind(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("written")
        raise RuntimeError("exporter broke")

    with pytest.raises(RuntimeError, match="exporter broke"):
        disk_cache.cached_folder("failing", fail, {})
    assert [path.name for path in cache.glob("*failing*") if path.suffix != ".lock"] == []


def test_full_disk_is_a_clear_error_and_leaves_nothing_behind(cache: Path) -> None:
    def fill(_folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"cannot write the model cache .*No space left.*set REWRITEGYM_CACHE") as raised:
        disk_cache.cached_folder("full", fill, {})
    assert raised.value.errno == 28
    assert [path.name for path in cache.glob("*full*") if path.suffix != ".lock"] == []


def test_unusable_cache_folder_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="set REWRITEGYM_CACHE to another folder"):
        zoo.export("bert", **_TINY_BERT)


def test_left_overs_of_a_killed_process_are_removed(cache: Path) -> None:
    left_over = cache / ".killed-abc" / "new"
    left_over.mkdir(parents=True)
    (left_over / "model.onnx").write_text("half")
    folder = disk_cache.cached_folder("killed", lambda new: (new / "x").touch(), {})
    assert (folder / "x").exists()
    assert not left_over.parent.exists()


def test_concurrent_requests_export_once(cache: Path) -> None:
    calls: list[Path] = []
    start = threading.Barrier(4)

    def create(folder: Path) -> None:
        calls.append(folder)
        (folder / "x").write_text("content")

    def request() -> None:
        start.wait()
        assert (disk_cache.cached_folder("contended", create, {}) / "x").read_text() == "content"

    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert (cache / "contended" / "x").exists()


def test_links_to_the_cache_folder_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "link"))
    assert disk_cache.zoo_folder() == (tmp_path / "real").resolve() / "zoo"
