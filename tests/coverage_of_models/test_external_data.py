"""Models whose weights lie in several files: beside them, in subfolders, and behind links."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import rewritegym
from agents.conclusion.conclude import original_kept, saved_and_checked
from graph_rewrite.task.problem import open_problem
from tests.graph_rewrite.sample_models import parsed, weights

NAMES = ("w0", "w1", "w2", "w3")
X = {"x": np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)}


def model() -> onnx.ModelProto:
    """Four layers; a transposition in their middle that a rewrite removes."""
    return parsed(
        """(float[8,64] x) => (float[8,64] y) {
            a = MatMul(x, w0)  b = Relu(a)  c = MatMul(b, w1)
            s = Transpose<perm = [1, 0]>(c)  t = Transpose<perm = [1, 0]>(s)
            d = MatMul(t, w2)  e = Relu(d)  y = MatMul(e, w3) }""",
        *(weights(name, 64, 64, seed=seed) for seed, name in enumerate(NAMES)),
    )


def write(path: Path, place: Callable[[str], str]) -> Path:
    """Write the model with each weight in the file that `place` names, one behind another where they share it."""
    proto = model()
    path.parent.mkdir(parents=True, exist_ok=True)
    for tensor in proto.graph.initializer:
        location = path.parent / place(tensor.name)
        location.parent.mkdir(parents=True, exist_ok=True)
        with location.open("ab") as stream:
            offset = stream.tell()
            stream.write(tensor.raw_data)
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", place(tensor.name)), ("offset", str(offset)), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
    onnx.save(proto, path)
    return path


def beside(folder: Path) -> Path:
    return write(folder / "model.onnx", lambda name: f"{name}.bin")


def shared(folder: Path) -> Path:
    return write(folder / "model.onnx", lambda name: "even.bin" if name in ("w0", "w2") else "odd.bin")


def in_subfolders(folder: Path) -> Path:
    return write(folder / "model.onnx", lambda name: f"weights/{name[-1]}/{name}.bin")


def linked_inside(folder: Path) -> Path:
    """Links in the model's folder to files in a subfolder of it."""
    path = write(folder / "model.onnx", lambda name: f"{name}.bin")
    (folder / "real").mkdir()
    for name in NAMES[:2]:
        (folder / f"{name}.bin").rename(folder / "real" / name)
        (folder / f"{name}.bin").symlink_to(Path("real", name))
    return path


def hugging_face(folder: Path) -> Path:
    """The layout of its cache: everything is a link from a snapshot to a blob."""
    snapshot, blobs = folder / "models--a--b" / "snapshots" / "123", folder / "models--a--b" / "blobs"
    path = write(snapshot / "onnx" / "model.onnx", lambda name: f"{name}.bin")
    blobs.mkdir()
    for number, file in enumerate(sorted(path.parent.iterdir())):
        file.rename(blobs / f"blob{number}")
        file.symlink_to(os.path.relpath(blobs / f"blob{number}", file.parent))
    return path


LAYOUTS = [beside, shared, in_subfolders, linked_inside, hugging_face]


def expected() -> np.ndarray:
    return np.asarray(onnx.reference.ReferenceEvaluator(model()).run(None, X)[0])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
class TestWeightsInSeveralFiles:
    def test_a_rewritten_model_is_right(self, tmp_path: Path, layout: Callable[[Path], Path]) -> None:
        path = layout(tmp_path / "in")
        problem = open_problem(f"file:{path}", provider="cpu", cached=False)
        candidates = problem.rewriter.candidates(problem.model.graph)
        graph = next(c for c in candidates if c.rule == "ComposeTransposes").apply()
        checked = saved_and_checked(problem, graph)
        assert checked.outcome.ok, checked.outcome.message
        shutil.rmtree(tmp_path / "in")  # a result stands on its own
        written = checked.write_to(tmp_path / "out" / "fast.onnx")
        found = rewritegym.session(written).run(None, X)[0]
        assert np.allclose(found, expected(), rtol=1e-4, atol=1e-4)

    def test_an_original_that_is_kept_is_complete(self, tmp_path: Path, layout: Callable[[Path], Path]) -> None:
        path = layout(tmp_path / "in")
        problem = open_problem(f"file:{path}", provider="cpu", cached=False)
        kept = original_kept(problem)
        assert kept.outcome.ok, kept.outcome.message
        written = kept.write_to(tmp_path / "out" / "kept.onnx")
        assert written.read_bytes() == path.read_bytes()
        shutil.rmtree(tmp_path / "in")
        found = rewritegym.session(written).run(None, X)[0]
        assert np.allclose(found, expected(), rtol=1e-4, atol=1e-4)


def test_it_is_measured(tmp_path: Path) -> None:
    problem = open_problem(f"file:{in_subfolders(tmp_path)}", provider="cpu", cached=False)
    found = problem.measure(problem.model.graph)
    assert found.ok, found.message
