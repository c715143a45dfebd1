"""An original that is kept is the user's own file, byte by byte, in any folder."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.delivery import ship
from graph_rewrite.delivery.deployed import METADATA_KEY, recorded_deployment, session, sidecar_of
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.ship import OriginalModel, UnverifiedModelError, copy_original, kept_original
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Deployment
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.onnx_files.weight_files import weight_files
from graph_rewrite.system.deadline import ending_at

DEPLOYMENT = Deployment()
FEEDS = {"x": np.arange(20, dtype=np.float32).reshape(5, 4)}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A product with a symbolic batch; its weights lie in two files, one of them in a folder, one read in a branch."""
    rng = np.random.default_rng(0)
    weights = {name: numpy_helper.from_array(rng.standard_normal((4, 4)).astype(np.float32), name) for name in "abc"}
    free = [helper.make_tensor_value_info(f"{name}y", TensorProto.FLOAT, None) for name in "abc"]
    branch = [helper.make_graph([helper.make_node("MatMul", ["h", name], [f"{name}y"])], name,
                                [], [free["abc".index(name)]], [weights[name]]) for name in "bc"]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("If", ["choice"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    symbolic = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    choice = numpy_helper.from_array(np.array(True), "choice")
    graph = helper.make_graph(nodes, "g", symbolic[:1], symbolic[1:], [weights["a"], choice])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    folder = tmp_path / "user"
    (folder / "more").mkdir(parents=True)
    inner = [graph.initializer[0] for graph in (a.g for a in model.graph.node[1].attribute)]
    for tensor, place in ((model.graph.initializer[0], "w.bin"), (inner[0], "more/b.bin"), (inner[1], "w.bin")):
        file = folder / place
        offset = file.stat().st_size if file.exists() else 0
        with file.open("ab") as stream:
            stream.write(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, place, offset, len(tensor.raw_data))
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def keep(original: Path) -> OriginalModel:
    """Keep the original, which is run with a fixed batch."""
    runnable = materialize(load(original, {"x": (5, 4)}), original.parent.with_name("work"))
    return kept_original(original, DEPLOYMENT, runnable=runnable)


def test_all_files_with_weights_are_known(original: Path) -> None:
    assert weight_files(original) == ["more/b.bin", "w.bin"]


def test_in_another_folder_it_is_complete_and_computes_the_same_for_any_batch(original: Path, tmp_path: Path) -> None:
    kept = keep(original)
    path = kept.write_to(tmp_path / "run" / "kept.onnx")
    assert path.read_bytes() == original.read_bytes()
    assert (path.parent / "more/b.bin").read_bytes() == (original.parent / "more/b.bin").read_bytes()
    assert recorded_deployment(path) == DEPLOYMENT
    assert np.array_equal(session(path).run(None, FEEDS)[0], _run(original))
    # Weights with several hard links are refused when they are read, here and by onnx; the user's own too.
    onnx.load(path)
    onnx.load(original)
    assert load(path, {"x": (5, 4)}).hash == load(original, {"x": (5, 4)}).hash
    assert (path.parent / "w.bin").stat().st_nlink == (original.parent / "w.bin").stat().st_nlink == 1


def _run(path: Path) -> np.ndarray:
    import onnxruntime

    found: np.ndarray = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, FEEDS)[0]
    return found


def test_originals_of_one_folder_share_their_weights(original: Path, tmp_path: Path) -> None:
    kept = keep(original)
    kept.write_to(tmp_path / "run" / "greedy.onnx")
    before = (tmp_path / "run" / "w.bin").stat()
    kept.write_to(tmp_path / "run" / "random.onnx")
    assert (tmp_path / "run" / "w.bin").stat().st_ino == before.st_ino
    names = {file.name for file in (tmp_path / "run").iterdir()}
    assert names == {
        "more",
        "w.bin",
        *(f"{n}.onnx{end}" for n in ("greedy", "random") for end in ("", ".deployment.json")),
    }


def test_in_its_own_folder_nothing_is_copied(original: Path) -> None:
    before = {file.name for file in original.parent.iterdir()}
    copy = copy_original(original, original.with_name("copy.onnx"), DEPLOYMENT)
    assert copy.read_bytes() == original.read_bytes()
    assert {file.name for file in original.parent.iterdir()} - before == {"copy.onnx", "copy.onnx.deployment.json"}


def test_files_of_somebody_else_are_left_alone(original: Path, tmp_path: Path) -> None:
    other = tmp_path / "run"
    other.mkdir()
    (other / "w.bin").write_bytes(b"of somebody else")
    with pytest.raises(UserError, match=r"w\.bin exists .* write to another folder"):
        copy_original(original, other / "kept.onnx", DEPLOYMENT)
    assert (other / "w.bin").read_bytes() == b"of somebody else"
    assert not (other / "kept.onnx").exists()


def test_weights_of_the_same_size_and_time_are_read(original: Path, tmp_path: Path) -> None:
    """Archives and images that are built reproducibly give all files one time."""
    other, own = tmp_path / "run" / "w.bin", original.parent / "w.bin"
    other.parent.mkdir()
    other.write_bytes(bytes(own.stat().st_size))
    for file in (other, own):
        os.utime(file, (0, 0))
    with pytest.raises(UserError, match=r"w\.bin exists"):
        copy_original(original, other.with_name("kept.onnx"), DEPLOYMENT)


def test_a_result_that_is_optimised_again_and_kept_opens_as_it_was_measured(original: Path, tmp_path: Path) -> None:
    model = onnx.load(original, load_external_data=False)
    helper.set_model_props(model, {METADATA_KEY: json.dumps(DEPLOYMENT.to_json())})
    onnx.save(model, original)
    kept = copy_original(original, original.with_name("kept.onnx"), Deployment(threads=3))
    assert kept.read_bytes() == original.read_bytes()
    assert recorded_deployment(kept) == Deployment(threads=3)
    other = shutil.copy(kept, tmp_path / "other.onnx")
    sidecar_of(other).write_text(sidecar_of(kept).read_text())
    assert recorded_deployment(other) == Deployment(threads=3)  # the same file
    model.graph.name = "another"
    onnx.save(model, other)
    assert recorded_deployment(other) == DEPLOYMENT


def test_without_clones_weights_are_copied(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: int) -> int:
        raise OSError("not on this file system")

    monkeypatch.setattr("graph_rewrite.onnx_files.weight_files.os.copy_file_range", refused, raising=False)
    (tmp_path / "run").mkdir()
    copy_original(original, tmp_path / "run" / "kept.onnx", DEPLOYMENT)
    assert (tmp_path / "run" / "w.bin").read_bytes() == (original.parent / "w.bin").read_bytes()
    assert len(list((tmp_path / "run").iterdir())) == 4


def test_an_original_that_disagrees_with_itself_or_changed_is_not_written(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(original)
    original.write_bytes(original.read_bytes() + b"\x00")
    with pytest.raises(UnverifiedModelError, match="changed after it was verified"):
        kept.write_to(tmp_path / "kept.onnx")
    monkeypatch.setattr(ship, "equivalent", lambda *a, **k: Equivalence(False, 1.0, 1e-4, "it draws random numbers"))
    with pytest.raises(UnverifiedModelError, match="random numbers"):
        kept_original(original, DEPLOYMENT).write_to(tmp_path / "kept.onnx")
    assert not (tmp_path / "kept.onnx").exists()


def test_without_time_it_is_handed_over_unrun(original: Path, tmp_path: Path) -> None:
    with ending_at(0.0):
        kept = kept_original(original, DEPLOYMENT)
    assert kept.outcome.ok
    assert "no time was left" in kept.outcome.message
    assert kept.write_to(tmp_path / "kept.onnx").read_bytes() == original.read_bytes()
