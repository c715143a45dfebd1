"""Every peer that is installed gives the original's outputs; one that is not says what it needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import PEERS, MissingPeer, catalogue
from benchmarks.protocol.contestants import Contestant
from graph_rewrite import zoo
from graph_rewrite.latency.provider import ProviderError
from graph_rewrite.system.extras import is_installed
from tests.benchmarks.peers.planted import check_outputs, several_inputs, write_several
from tests.small_models import SMALL

NEEDS = {
    "onnxsim": "onnxsim", "onnxslim": "onnxslim", "onnxscript": "onnxscript", "openvino": "openvino",
    "pytorch": "torch", "inductor": "torch",
}  # fmt: skip
"""Peers with an optional package, and that package's module."""
ON_A_DEVICE = ("cuda", "cuda-graph", "tensorrt")
READ_FILES = [name for name in PEERS if name not in (*ON_A_DEVICE, "pytorch", "inductor")]
"""Peers that take any ONNX file."""
MODELS = ("bert", "squeezenet")

needed = pytest.mark.parametrize("name", NEEDS)


def require_peer(name: str) -> None:
    """Skip the test where the peer's package is not installed."""
    if name in NEEDS and not is_installed(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed: pip install 'rewritegym[bench]'")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the preparation in this process: one of its own takes seconds to import the tools."""

    def run(name: str, task: str, model: Path, folder: Path, threads: int, *limits: float) -> dict[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        module, _, function = task.partition(":")
        made: dict[str, Any] = getattr(import_module(module), function)(model, folder, threads)
        return made

    monkeypatch.setattr(catalogue, "prepare_apart", run)


def prepared(name: str, model: Path, folder: Path) -> Contestant:
    """Prepare a peer, and see that another process can be told of it."""
    contestant = PEERS[name](model, folder, 1)
    assert contestant.name == name
    return Contestant.from_json(json.loads(json.dumps(contestant.to_json())))


@pytest.mark.usefixtures("in_this_process")
class TestOutputs:
    @pytest.mark.parametrize("name", READ_FILES)
    def test_several_inputs_and_outputs(self, name: str, tmp_path: Path) -> None:
        require_peer(name)
        model = write_several(tmp_path / "several.onnx")
        check_outputs(prepared(name, model, tmp_path), model, [several_inputs(seed) for seed in range(3)])

    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("name", [*READ_FILES, "pytorch"])
    def test_models_of_the_zoo(self, name: str, model: str, tmp_path: Path) -> None:
        require_peer(name)
        params = SMALL[model]
        path = zoo.export(model, **params)
        inputs = [zoo.example_inputs(model, input_seed=seed, **params) for seed in (1, 2)]
        check_outputs(prepared(name, path, tmp_path), path, [dict(each) for each in inputs])

    def test_weights_in_a_file_of_their_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("benchmarks.peers.optimisers._EXTERNAL_BYTES", 0)
        monkeypatch.setattr("benchmarks.peers.optimisers._INLINE_BYTES", 0)
        model = write_several(tmp_path / "several.onnx")
        for _ in range(2):  # what is left of the first is no part of the second
            contestant = prepared("ort-transformers", model, tmp_path)
        assert contestant.path is not None
        assert contestant.path.with_name("optimised.onnx.data").stat().st_size < 2 * 4 * (5 * 4 + 6 * 4)
        check_outputs(contestant, model, [several_inputs(0)])

    def test_an_optimiser_that_loses_an_output_fails(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        onnxslim = pytest.importorskip("onnxslim", reason="onnxslim is not installed: pip install 'rewritegym[bench]'")
        slim: Callable[[str], Any] = onnxslim.slim

        def losing(path: str) -> Any:
            model = slim(path)
            del model.graph.output[0]
            return model

        monkeypatch.setattr(onnxslim, "slim", losing)
        with pytest.raises(ValueError, match="the optimised model has no output z"):
            PEERS["onnxslim"](write_several(tmp_path / "several.onnx"), tmp_path, 1)


class TestMissing:
    @needed
    def test_a_package_that_is_not_installed(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalogue, "is_installed", lambda module: module != NEEDS[name])
        with pytest.raises(MissingPeer, match=rf"^{name} needs .*: pip install 'rewritegym\[bench\]'$"):
            PEERS[name](write_several(tmp_path / "several.onnx"), tmp_path, 1)

    @pytest.mark.parametrize("name", ["pytorch", "inductor"])
    def test_a_module_for_a_model_from_elsewhere(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(MissingPeer, match=r"the PyTorch modules of the zoo, and .*several.onnx is no file"):
            PEERS[name](write_several(tmp_path / "several.onnx"), tmp_path, 1)

    def test_a_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "no-such-compiler")
        with pytest.raises(MissingPeer, match=r"^inductor compiles C\+\+ and finds no no-such-compiler: install it"):
            PEERS["inductor"](tmp_path / "model.onnx", tmp_path, 1)

    @pytest.mark.parametrize("name", ON_A_DEVICE)
    def test_a_device(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(wanted: str) -> str:
            raise ProviderError(f"provider {wanted!r} does not work here: no device")

        monkeypatch.setattr(catalogue, "resolve_provider", refuse)
        monkeypatch.setattr(catalogue.onnxruntime, "get_available_providers", lambda: ["TensorrtExecutionProvider"])
        with pytest.raises(MissingPeer, match=rf"^{name}: provider 'cuda' does not work here: no device$"):
            PEERS[name](tmp_path / "model.onnx", tmp_path, 1)

    def test_a_provider(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalogue.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
        with pytest.raises(MissingPeer, match="has no TensorRT provider"):
            PEERS["tensorrt"](tmp_path / "model.onnx", tmp_path, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cuda", "cuda-graph"])
def test_a_device_runs_the_model(name: str, tmp_path: Path) -> None:
    model = write_several(tmp_path / "several.onnx")
    runner = prepared(name, model, tmp_path).open(1)
    assert [value.shape for value in runner.run(several_inputs(0))] == [(2, 4), (3, 4)]
