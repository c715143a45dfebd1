"""Sessions that replay CUDA graphs. Here the places are in the memory of the CPU, whose provider records nothing: the
right arrays must be copied to and from the same places, and each set of shapes must have a number of its own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from graph_rewrite.latency import resolve_provider
from graph_rewrite.runtime import Deployment, FeedSpec, Runner, open_session
from graph_rewrite.runtime.ort_worker.runtimes import onnx_runtime
from graph_rewrite.runtime.ort_worker.sessions import cuda_graphs
from graph_rewrite.runtime.ort_worker.sessions.cuda_graphs import CudaGraphSession

GRAPHS = Deployment("cuda").with_settings({"enable_cuda_graph": True})
MODEL = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 4] x, float[4] b) => (float[batch, 4] sum, int64[2] shape) {
    sum = Add(x, b)
    shape = Shape(x)
}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


class Recorded(CudaGraphSession):
    """A session on the CPU that notes the runs with bound places: number of the graph and address of each input."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), providers=["CPUExecutionProvider"], device="cpu")
        self.replays: list[tuple[str, int]] = []

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> Any:
        number = run_options.get_run_config_entry("gpu_graph_id")
        self.replays.append((number, iobinding.get_outputs()[0].data_ptr()))
        return super().run_with_iobinding(iobinding, run_options)


def feeds(seed: int, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((batch, 4)).astype(np.float32), "b": rng.standard_normal(4).astype(np.float32)}


def assert_right(session: ort.InferenceSession, given: dict[str, np.ndarray[Any, Any]]) -> None:
    total, shape = session.run(None, given)
    np.testing.assert_array_equal(total, given["x"] + given["b"])
    np.testing.assert_array_equal(shape, given["x"].shape)


def test_every_run_answers_for_its_own_inputs_from_fixed_places(path: Path) -> None:
    session = Recorded(path)
    for seed, batch in enumerate([2, 2, 3, 2, 3, 3, 2]):
        assert_right(session, feeds(seed, batch))
    # The first run of each batch tells the shapes of the outputs.
    assert [number for number, _ in session.replays] == ["1", "1", "2", "2", "1"]
    assert len(set(session.replays)) == 2


def test_outputs_are_not_overwritten_by_later_runs(path: Path) -> None:
    session = Recorded(path)
    found = [session.run(["sum"], feeds(seed, 2))[0] for seed in range(4)]
    for seed, total in enumerate(found):
        np.testing.assert_array_equal(total, feeds(seed, 2)["x"] + feeds(seed, 2)["b"])


def test_outputs_by_name_in_the_order_asked_for(path: Path) -> None:
    session = Recorded(path)
    for seed in range(3):
        shape, total = session.run(["shape", "sum"], feeds(seed, 2))
        assert list(shape) == [2, 4]
        assert total.shape == (2, 4)
        with pytest.raises(ValueError, match=r"no output 'other'; it has \['shape', 'sum'\]"):
            session.run(["other"], feeds(seed, 2))


def test_inputs_that_are_not_contiguous(path: Path) -> None:
    session = Recorded(path)
    for seed in range(3):
        given = feeds(seed, 4)
        assert_right(session, {**given, "x": given["x"].T})


def test_graphs_take_no_more_memory_than_for_a_few_shapes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "MOST_GRAPHS", 2)
    session = Recorded(path)
    for seed in range(3):
        for batch in (1, 2, 3):
            assert_right(session, feeds(seed, batch))
    assert {number for number, _ in session.replays} == {"1", "2"}


def test_runs_by_other_means_neither_record_nor_replay(path: Path) -> None:
    session, given = Recorded(path), feeds(0, 2)
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in given.items()}
    options = ort.RunOptions()
    for _ in range(2):
        (total,) = session.run(["sum"], given, options)
        np.testing.assert_array_equal(total, given["x"] + given["b"])
        assert options.get_run_config_entry("gpu_graph_id") == "-1"
        (value,) = session.run_with_ort_values(["sum"], values)
        np.testing.assert_array_equal(value.numpy(), given["x"] + given["b"])
        assert_right(session, {**given, "x": values["x"].numpy()[:0]})  # no elements, no places
    assert session.replays == []


def test_a_wrong_input_is_the_runtimes_error(path: Path) -> None:
    session = Recorded(path)
    for _ in range(2):
        with pytest.raises(Exception, match="Unexpected input data type"):
            session.run(None, {**feeds(0, 2), "x": np.ones((2, 4))})
        with pytest.raises(ValueError, match=r"Required inputs \(\['b'\]\) are missing"):
            session.run(None, {"x": feeds(0, 2)["x"]})


def test_threads_do_not_mix_their_inputs(path: Path) -> None:
    session, wrong = Recorded(path), list[int]()

    def work(number: int) -> None:
        for seed in range(50):
            given = feeds(1000 * number + seed, 2)
            if not np.array_equal(session.run(["sum"], given)[0], given["x"] + given["b"]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_timed_runs_write_to_one_place(path: Path) -> None:
    session = CudaGraphSession(str(path), providers=["CPUExecutionProvider"], device="cpu")
    place, bias = ort.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32), np.zeros(4, np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", place)
    binding.bind_ortvalue_input("b", ort.OrtValue.ortvalue_from_numpy(bias))
    binding.bind_output("sum")
    binding.bind_output("shape")
    session.fix_outputs(binding)
    first = [value.data_ptr() for value in binding.get_outputs()]
    for seed in range(3):
        place.update_inplace(feeds(seed, 2)["x"])
        session.run_with_iobinding(binding)
        assert [value.data_ptr() for value in binding.get_outputs()] == first
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), feeds(seed, 2)["x"])


def test_it_is_opened_where_the_deployment_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that is there in name only: the options that it gets are noted."""
    opened: list[Any] = []

    class Fake(CudaGraphSession):
        def __init__(self, model: str, options: Any, providers: Any) -> None:
            opened.append(providers)
            super().__init__(model, options, providers=["CPUExecutionProvider"], device="cpu")

        def get_providers(self) -> list[str]:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    monkeypatch.setattr(onnx_runtime, "CudaGraphSession", Fake)
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)
    session = open_session(path, GRAPHS)
    assert opened == [[("CUDAExecutionProvider", {"enable_cuda_graph": "1"}), "CPUExecutionProvider"]]
    for seed in range(3):
        assert_right(session, feeds(seed, 2))


@pytest.mark.gpu
def test_on_a_device(path: Path) -> None:
    assert resolve_provider("auto") == "cuda"
    model = onnx.load(path)
    del model.graph.output[1], model.graph.node[1]
    onnx.save(model, path)
    session = open_session(path, GRAPHS)
    for seed, batch in enumerate([2, 2, 3, 2, 3, 3, 2]):
        given = feeds(seed, batch)
        np.testing.assert_array_equal(session.run(None, given)[0], given["x"] + given["b"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, path)
    runner = Runner(str(path), GRAPHS, FeedSpec())
    for _ in range(4):
        runner.run()
