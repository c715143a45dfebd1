"""Is an optimised model equal to the original? Agreement, disagreement, and everything that can go wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graph_rewrite import ModelLoadError, load
from graph_rewrite.delivery.equivalence import Equivalence, equivalent, judge_findings
from graph_rewrite.delivery.tolerance import default_tolerance, depth
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.ort_worker.comparison import Finding
from graph_rewrite.runtime.ort_worker.values import compare_values, is_constant
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.sample_models import parsed, weights
from tests.runtimes import every_provider

CPU = Deployment()
TEXT = "(float[2,3] x) => (float[2,4] y) { t = MatMul(x, w)  y = Relu(t) }"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return write(parsed(TEXT, weights("w", 3, 4)), tmp_path, "original")


def write(model: onnx.ModelProto, folder: Path, name: str = "optimised") -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


class TestOutcomes:
    @every_provider
    def test_equal_models(self, original: Path, tmp_path: Path, provider: str) -> None:
        rewritten = TEXT.replace("y = Relu(t)", "z = Sub(t, t)  y = Max(t, z)")
        found = equivalent(original, write(parsed(rewritten, weights("w", 3, 4)), tmp_path), Deployment(provider))
        assert found.ok
        assert found.max_rel_error <= found.tolerance < 1e-4
        assert "agree on 5 inputs" in found.message

    @every_provider
    def test_another_function(self, original: Path, tmp_path: Path, provider: str) -> None:
        other = write(parsed(TEXT.replace("Relu", "LeakyRelu"), weights("w", 3, 4)), tmp_path)
        found = equivalent(original, other, Deployment(provider))
        assert not found.ok
        assert found.max_rel_error > 1e-3
        assert "output 'y' with seed" in found.message
        assert equivalent(original, other, CPU, tolerance=1.0).ok
        assert not equivalent(original, other, CPU, seeds=1).ok

    def test_an_input_is_named_by_the_seed_that_makes_it_again(self, original: Path, tmp_path: Path) -> None:
        other = write(parsed(TEXT.replace("Relu", "LeakyRelu"), weights("w", 3, 4)), tmp_path)
        found = equivalent(original, other, CPU, seeds=1, feeds=FeedSpec(seed=7))
        assert "output 'y' with seed 7 differs" in found.message

    def test_a_difference_that_only_a_masked_token_shows(self, tmp_path: Path) -> None:
        masked = "(float[1,8] x, int64[1,8] mask) => (float[1,8] y) { m = Cast<to = 1>(mask)  y = Mul(x, m) }"
        plain = masked.replace("y = Mul(x, m)", "z = Mul(m, zero)  y = Add(x, z)")
        zero = numpy_helper.from_array(np.float32(0), "zero")
        files = write(parsed(masked), tmp_path, "a"), write(parsed(plain, zero), tmp_path, "b")
        assert equivalent(*files, CPU, seeds=1).ok, "with the first input nothing is masked"
        assert not equivalent(*files, CPU, seeds=2).ok

    def test_another_shape_or_type_or_number_of_outputs(self, original: Path, tmp_path: Path) -> None:
        wide = write(parsed(TEXT.replace("[2,4] y", "[2,5] y"), weights("w", 3, 5)), tmp_path)
        assert "is float32[2, 5] instead of float32[2, 4]" in equivalent(original, wide, CPU).message
        renamed = write(parsed(TEXT.replace(" y", " z"), weights("w", 3, 4)), tmp_path)
        assert "output 'y' with seed 0 is missing" in equivalent(original, renamed, CPU).message

    def test_whole_numbers_must_be_the_same(self, tmp_path: Path) -> None:
        text = "(float[2,9] x) => (int64[2,1] y) { y = ArgMax<axis = 1>(x) }"
        files = write(parsed(text), tmp_path, "a"), write(parsed(text.replace("ArgMax", "ArgMin")), tmp_path, "b")
        assert equivalent(files[0], files[0], CPU).ok
        assert "other integers, booleans or strings" in equivalent(*files, CPU).message

    def test_nan_and_infinity_must_stand_in_the_same_places(self, tmp_path: Path) -> None:
        text = "(float[2,9] x) => (float[2,9] y) { y = Log(x) }"
        guarded = "(float[2,9] x) => (float[2,9] y) { t = Relu(x)  y = Log(t) }"
        files = write(parsed(text), tmp_path, "a"), write(parsed(guarded), tmp_path, "b")
        assert equivalent(files[0], files[0], CPU).ok
        assert "NaN or infinity in other places" in equivalent(*files, CPU).message

    def test_degenerate_outputs(self, original: Path, tmp_path: Path) -> None:
        nothing = TEXT.replace("y = Relu(t)", "y = Sub(t, t)")
        zero = write(parsed(nothing, weights("w", 3, 4)), tmp_path)
        found = equivalent(original, zero, CPU)
        assert not found.ok
        assert found.message.startswith("vacuous: output 'y' with seed 0 is constant")
        found = equivalent(zero, zero, CPU)
        assert found.ok
        assert found.message.endswith("y is the same on all inputs, and both models compute it by the same operators")

    def test_sequences_and_optionals(self, tmp_path: Path) -> None:
        model = sample_models.sequences()
        path = write(model, tmp_path, "a")
        assert equivalent(path, path, CPU).ok
        model.graph.node[0].input[1] = "x"
        assert not equivalent(path, write(model, tmp_path), CPU).ok

    def test_strings_must_be_the_same(self, tmp_path: Path) -> None:
        model = sample_models.strings()
        path = write(model, tmp_path, "a")
        assert equivalent(path, path, CPU).ok
        model.graph.node[0].input[:] = ["words", "x"]
        found = equivalent(path, write(model, tmp_path), CPU)
        assert not found.ok
        assert "output 'y' with seed 0 has other integers, booleans or strings" in found.message

    def test_symbolic_originals_get_the_shapes_of_the_optimised(self, tmp_path: Path) -> None:
        symbolic = write(parsed(TEXT.replace("[2,", "[N,"), weights("w", 3, 4)), tmp_path, "a")
        fixed = write(parsed(TEXT, weights("w", 3, 4)), tmp_path, "b")
        assert equivalent(symbolic, fixed, CPU).ok


class TestFailures:
    def test_a_missing_or_broken_optimised_model(self, original: Path, tmp_path: Path) -> None:
        found = equivalent(original, tmp_path / "nothing.onnx", CPU)
        assert not found.ok
        assert math.isinf(found.max_rel_error)
        assert found.message.startswith("optimised: open: ")
        (tmp_path / "broken.onnx").write_bytes(b"nonsense")
        assert not equivalent(original, tmp_path / "broken.onnx", CPU).ok

    def test_a_missing_original(self, original: Path, tmp_path: Path) -> None:
        with pytest.raises(ModelLoadError, match="no such file"):
            equivalent(tmp_path / "nothing.onnx", original, CPU)
        with pytest.raises(ValueError, match="seeds must be at least 1"):
            equivalent(original, original, CPU, seeds=0)

    def test_a_failure_while_running(self, original: Path, tmp_path: Path) -> None:
        text = "(float[2,3] x) => (float[1,3] y) <int64[1] i = {7}> { y = Gather(x, i) }"
        found = equivalent(original, write(parsed(text), tmp_path), CPU)
        assert not found.ok
        assert found.message.startswith("optimised: ")

    def test_inputs_that_cannot_be_made(self, tmp_path: Path) -> None:
        path = write(parsed("(seq(map(int64, float)) s, float[2] x) => (float[2] y) { y = Neg(x) }"), tmp_path)
        found = equivalent(path, path, CPU)
        assert not found.ok
        assert "feeds can be made for tensors of" in found.message

    def test_a_crash_is_an_outcome(self, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The process that compares is told to use an onnxruntime that kills it."""
        fake = tmp_path / "fake" / "onnxruntime"
        fake.mkdir(parents=True)
        (fake / "__init__.py").write_text(
            "import os, signal\n"
            "class InferenceSession: ...\n"
            "class SessionOptions:\n"
            "    def __init__(self):\n"
            "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(fake.parent))
        found = equivalent(original, original, CPU)
        assert not found.ok
        assert "the runtime crashed (SIGSEGV)" in found.message
        assert found.message.startswith("optimised: open")

    def test_a_hang_is_an_outcome(self, original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graph_rewrite.delivery.equivalence.TIMEOUT_S", 0.01)
        assert "no end after 0.01 s" in equivalent(original, original, CPU).message


class TestFeeds:
    def test_indices_lie_in_range(self, tmp_path: Path) -> None:
        text = """(int64[1,4] ids, int64[4] kind, float[3] x) => (float[1,4,3] y) <int64[1] axis = {0}> {
            wide = Unsqueeze(kind, axis)  small = Cast<to = 6>(ids)
            a = Gather(table, small)  b = Gather(kinds, wide)  y = Add(a, b)
        }"""
        model = parsed(text, weights("table", 17, 3), weights("kinds", 2, 3))
        assert index_ranges(load(model)) == {"ids": (0, 17), "kind": (0, 2)}
        path = write(model, tmp_path)
        assert equivalent(path, path, CPU).ok

    def test_the_smallest_table_counts_and_axes(self) -> None:
        text = (
            "(int64[2] i) => (float[3,2] y) { a = Gather<axis = 1>(t, i)  b = Gather<axis = -1>(s, i)  y = Add(a, b) }"
        )
        assert index_ranges(load(parsed(text, weights("t", 3, 9), weights("s", 3, 5)))) == {"i": (0, 5)}

    def test_feeds_of_the_caller(self, original: Path, tmp_path: Path) -> None:
        other = write(parsed(TEXT.replace("Relu", "Abs"), weights("w", 3, 4)), tmp_path)
        np.savez(tmp_path / "feeds.npz", x=np.zeros((2, 3), np.float32))
        found = equivalent(original, other, CPU, feeds=FeedSpec(npz=str(tmp_path / "feeds.npz")))
        assert not found.ok, "all is zero, and the rewritten part is what nobody sees"
        assert found.vacuous == ("y",)
        np.savez(tmp_path / "feeds.npz", x=np.eye(2, 3, dtype=np.float32))
        found = equivalent(original, original, CPU, feeds=FeedSpec(npz=str(tmp_path / "feeds.npz")))
        assert found.ok
        assert "agree on 1 inputs" in found.message
        assert not equivalent(original, other, CPU, feeds=FeedSpec(input_ranges={"x": (-1.0, 1.0)})).ok


class TestTolerance:
    def chain(self, length: int, dtype: Any = np.float32) -> onnx.ModelProto:
        nodes = [helper.make_node("Tanh", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
        element = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        ends = [helper.make_tensor_value_info(name, element, [3]) for name in ("v0", f"v{length}")]
        return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=11)

    def test_depth(self) -> None:
        assert depth(load(self.chain(7))) == 7
        assert depth(load(parsed("(float[2] x) => (float[2] x) { }"))) == 0
        branches = "(float[2] x) => (float[2] y) { a = Exp(x)  b = Exp(a)  c = Abs(x)  y = Add(b, c) }"
        assert depth(load(parsed(branches))) == 3

    def test_grows_with_depth_and_with_roundoff(self) -> None:
        values = [default_tolerance(load(self.chain(n)), CPU) for n in (1, 10, 200)]
        assert values == sorted(values)
        assert values[0] == pytest.approx(4.6e-5, rel=0.02)
        assert values[2] == pytest.approx(2.2e-4, rel=0.02)
        types = [default_tolerance(load(self.chain(10, dtype)), CPU) for dtype in (np.float64, np.float32, np.float16)]
        assert types[0] < 1e-8 < types[1] < 1e-3 < types[2] < 0.05

    def test_float32_on_cuda_is_tf32(self) -> None:
        graph = load(self.chain(10))
        assert default_tolerance(graph, Deployment("cuda")) > 10 * default_tolerance(graph, CPU)

    def test_integers_alone_have_that_of_float32(self) -> None:
        graph = load(parsed("(int64[2] x) => (int64[2] y) { y = Neg(x) }"))
        assert default_tolerance(graph, CPU) == pytest.approx(4.6e-5, rel=0.02)


class TestComparison:
    @pytest.mark.parametrize(
        ("a", "b", "error"),
        [
            (np.float32([1, -4]), np.float32([1, -3]), 0.25),
            (np.float32([0, 0]), np.float32([0, 0]), 0.0),
            (np.float32([0, 0]), np.float32([0, 1e-9]), np.inf),
            (np.float32([np.nan, 2]), np.float32([np.nan, 1]), 0.5),
            (np.float32([np.inf, 2]), np.float32([-np.inf, 2]), np.inf),
            (np.float32([1, 2]), np.float32([1, np.nan]), np.inf),
            (np.complex64([2j]), np.complex64([1j]), 0.5),
            (np.float16([2]), np.float32([2]), np.inf),
            (np.array([b"a"], object), np.array([b"b"], object), np.inf),
            (np.array([True]), np.array([True]), 0.0),
            ([np.float32([2])], [np.float32([1])], 0.5),
            ([np.float32([2])], [], np.inf),
            ([], [], 0.0),
            (None, None, 0.0),
            (None, np.float32([1]), np.inf),
            (["a", "b"], ["a", "c"], np.inf),
            (["a", "b"], ["a", "b"], 0.0),
            ([{"cat": 2.0, "dog": 1.0}], [{"cat": 1.0, "dog": 1.0}], 0.5),
            ([{1: 2.0}], [{2: 2.0}], np.inf),
            ({1: "a"}, {1: "a"}, 0.0),
            (np.zeros((0, 3)), np.zeros((0, 3)), 0.0),
        ],
    )  # fmt: skip
    def test_errors(self, a: Any, b: Any, error: float) -> None:
        found, problem = compare_values(a, b)
        assert found == error
        assert bool(problem) <= (error == np.inf)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (np.float32([1, 1]), True),
            (np.float32([1, 2]), False),
            (np.float32([1]), False),
            (np.float32([np.nan, np.nan]), True),
            (np.float32([1, np.nan]), False),
            (np.array([1, 1]), False),
            (None, False),
        ],
    )
    def test_constants(self, value: Any, expected: bool) -> None:
        assert is_constant(value) is expected

    def test_judgement(self, original: Path) -> None:
        graph = load(original)

        def finding(number: int, **changes: Any) -> Finding:
            return Finding(**{
                "output": "y", "number": number, "error": 0.0, "problem": "", "original_constant": False,
                "optimised_constant": False, "label": f"with seed {number}", **changes,
            })  # fmt: skip

        assert judge_findings([finding(0), finding(1, error=1e-6)], 1e-5, graph) == Equivalence(
            True, 1e-6, 1e-5, "outputs agree on 2 inputs within 1e-06 of their scale (tolerance 1e-05)"
        )
        assert not judge_findings([finding(0, error=np.nan)], 1e-5, graph).ok
        sometimes = [finding(0, original_constant=True, optimised_constant=True), finding(1)]
        assert "vacuous" not in judge_findings(sometimes, 1e-5, graph).message
