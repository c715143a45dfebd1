"""The user's inputs: one or several in a file, several files, and what is wrong with others."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graph_rewrite import load
from graph_rewrite.delivery.equivalence import equivalent
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment
from graph_rewrite.runtime.ort_worker.feeds import ModelInput, make_feeds
from graph_rewrite.task.input_data import MOST_INPUTS, read_input_data
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import write_tower
from tests.graph_rewrite.sample_models import overridable, parsed, weights

TEXT = "(float[1,3] x, int64[1,4] ids) => (float[1,4,3] y) { e = Gather(t, ids)  y = Add(e, x) }"
GRAPH = load(parsed(TEXT, weights("t", 9, 3)))
INPUTS = [ModelInput("x", "tensor(float)", (1, 3)), ModelInput("ids", "tensor(int64)", (1, 4))]
ONE = {"x": np.ones((1, 3), np.float32), "ids": np.zeros((1, 4), np.int64)}


def written(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def fed(specs: Any) -> list[dict[str, Any]]:
    return [make_feeds(INPUTS, spec) for spec in specs]


class TestItems:
    def test_one_input(self, tmp_path: Path) -> None:
        (feeds,) = fed(read_input_data([written(tmp_path / "a.npz", **ONE)], GRAPH))
        assert feeds["x"].tolist() == [[1.0, 1.0, 1.0]]
        assert feeds["ids"].shape == (1, 4)

    @pytest.mark.parametrize("shape", [(2, 1, 3), (2, 3)])
    def test_several_inputs_share_what_is_given_once(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        x = np.arange(6, dtype=np.float32).reshape(shape)
        first, second = fed(read_input_data([written(tmp_path / "a.npz", x=x, ids=ONE["ids"])], GRAPH))
        assert first["x"].tolist() == [[0.0, 1.0, 2.0]]
        assert second["x"].tolist() == [[3.0, 4.0, 5.0]]
        assert second["ids"].tolist() == ONE["ids"].tolist()

    def test_several_files_and_globs(self, tmp_path: Path) -> None:
        paths = [written(tmp_path / f"{name}.npz", **ONE) for name in "abc"]
        specs = read_input_data([paths[2], str(tmp_path / "*.npz")], GRAPH)
        assert [Path(spec.npz or "").name for spec in specs] == ["c.npz", "a.npz", "b.npz"]
        assert read_input_data([], GRAPH) == ()

    def test_many_inputs_are_cut(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.npz", x=np.zeros((100, 1, 3), np.float32), ids=ONE["ids"])
        assert len(read_input_data([path], GRAPH)) == MOST_INPUTS

    def test_initializers_that_may_be_overridden_are_not_asked_for(self, tmp_path: Path) -> None:
        path = written(tmp_path / "a.npz", x=np.zeros((2, 3), np.float32))
        assert len(read_input_data([path], load(overridable()))) == 1


class TestMistakes:
    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"x": ONE["x"]}, "has no array for the input 'ids'; the model's inputs are x, ids"),
            ({**ONE, "mask": ONE["x"]}, "has an array 'mask'; the model's inputs are x, ids"),
            ({**ONE, "x": np.zeros((1, 3))}, "'x' is of type float64, the model wants float32: write array.astype"),
            ({**ONE, "x": np.zeros((1, 5), np.float32)}, r"'x' is of shape \[1, 5\], the model wants \[1, 3\], or sev"),
            ({**ONE, "x": np.zeros((0, 1, 3), np.float32)}, "'x' holds no inputs"),
            (
                {"x": np.zeros((2, 1, 3), np.float32), "ids": np.zeros((3, 1, 4), np.int64)},
                "'x' holds 2 inputs, 'ids' holds 3 inputs: all must hold the same number",
            ),
        ],
    )
    def test_arrays(self, tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
        path = written(tmp_path / "a.npz", **arrays)
        with pytest.raises(UserError, match=message):
            read_input_data([path], GRAPH)

    @pytest.mark.parametrize(
        ("shape", "message"),
        [
            (f"({10**15},)", "says that it is larger than the memory"),
            (f"({10**30},)", r"no \.npz file of numbers"),
            ("(1, 4", r"no \.npz file of numbers"),
            ("(True, 4)", r"no \.npz file of numbers"),
            ("(-1,)", r"no \.npz file of numbers"),
            ("(" * 60_000, r"no \.npz file of numbers"),
        ],
    )
    def test_arrays_whose_headers_lie(self, tmp_path: Path, shape: str, message: str) -> None:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n".encode()
        member = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("x.npy", member)
        with pytest.raises(UserError, match=message):
            read_input_data([str(tmp_path / "a.npz")], GRAPH)

    @pytest.mark.parametrize(
        ("compression", "offset", "byte"),
        [
            (zipfile.ZIP_DEFLATED, 60, 0xFF),  # in the compressed data
            (zipfile.ZIP_LZMA, 50, 0xFF),
            (zipfile.ZIP_STORED, 8, 99),  # the method of compression
            (zipfile.ZIP_STORED, 6, 1),  # the flag of encryption
        ],
    )
    def test_damaged_archives(self, tmp_path: Path, compression: int, offset: int, byte: int) -> None:
        path = tmp_path / "a.npz"
        member = io.BytesIO()
        np.save(member, ONE["x"])
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("x.npy", member.getvalue())
        content = bytearray(path.read_bytes())
        content[offset] = byte
        if offset < 10:  # the list of members at the end of the file repeats it two bytes later
            content[content.index(b"PK\x01\x02") + offset + 2] = byte
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"no \.npz file of numbers"):
            read_input_data([str(path)], GRAPH)

    def test_files(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="there is no such file"):
            read_input_data([str(tmp_path / "*.npz")], GRAPH)
        for name, content in (("text", b"no zip"), ("empty", b""), ("cut", b"PK\x03\x04rest")):
            path = tmp_path / f"{name}.npz"
            path.write_bytes(content)
            with pytest.raises(UserError, match=r"no \.npz file of numbers"):
                read_input_data([str(path)], GRAPH)
        np.save(tmp_path / "array.npy", ONE["x"])
        with pytest.raises(UserError, match=r"no \.npz file of numbers"):
            read_input_data([str(tmp_path / "array.npy")], GRAPH)
        path = tmp_path / "pickled.npz"
        np.savez(path, x=np.array([{}], object), ids=ONE["ids"])
        with pytest.raises(UserError, match=r"no \.npz file of numbers") as error:
            read_input_data([str(path)], GRAPH)
        assert "pickle" not in str(error.value).removeprefix(f"--input-data {path}")


def test_a_difference_on_the_users_inputs_alone_is_found(tmp_path: Path) -> None:
    """Beyond 100 the two differ, where no random input lies; the second of three inputs does."""
    paths = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    onnx.save(parsed("(float[2] x) => (float[2] y) { y = Neg(x) }"), paths[0])
    clipped = "(float[2] x) => (float[2] y) <float low = {-100.0}> { n = Neg(x)  y = Max(n, low) }"
    onnx.save(parsed(clipped), paths[1])
    assert equivalent(*paths, Deployment(), extremes=False).ok
    file = written(tmp_path / "data.npz", x=np.float32([[1, 2], [3, 400], [5, 6]]))
    data = read_input_data([file], load(paths[0]))
    found = equivalent(*paths, Deployment(), extremes=False, data=data)
    assert not found.ok
    assert "output 'y' on data.npz[1] differs by" in found.message
    found = equivalent(paths[0], paths[0], Deployment(), extremes=False, data=data)
    assert "agree on 8 inputs" in found.message


def test_a_problem_measures_with_all_of_them_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))
    path = write_tower(tmp_path / "tower.onnx")
    file = written(tmp_path / "data.npz", x=np.zeros((2, 4, 4), np.float32))
    problem = open_problem(f"file:{path}", provider="cpu", cached=False, input_data=[file])
    assert [spec.item for spec in problem.data] == [0, 1]
    assert problem.meter.feeds == problem.data  # type: ignore[attr-defined]
    assert open_problem(f"file:{path}", provider="cpu", cached=False).meter is not problem.meter
