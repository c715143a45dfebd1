"""Beside random inputs, models are compared on extreme ones and on the user's."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graph_rewrite import load
from graph_rewrite.delivery import equivalence
from graph_rewrite.delivery.comparison_inputs import extreme_inputs
from graph_rewrite.delivery.comparison_process import ComparisonError
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.system.deadline import ending_at, seconds_left
from tests.graph_rewrite.sample_models import parsed, weights

CPU = Deployment()


def scalar(name: str, value: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.float32(value), name)


def compared(folder: Path, before: str, after: str, *tensors: onnx.TensorProto, **options: object) -> Equivalence:
    paths = []
    for name, text in (("original", before), ("optimised", after)):
        paths.append(folder / f"{name}.onnx")
        onnx.save(parsed(text, *tensors), paths[-1])
    return equivalent(*paths, CPU, **options)  # type: ignore[arg-type]


PLAIN = "(float[2,8] x) => (float[2,8] y) { y = Neg(x) }"


class TestExtremes:
    @pytest.mark.parametrize(
        ("pattern", "body"),
        [
            ("values of 1e-4", "k = Abs(x)  m = ReduceMax<keepdims = 0>(k)  l = Less(m, limit)  "
                                "g = Greater(m, zero)  e = And(l, g)  y = Where(e, one, r)"),
            ("values of 1e4", "c = Clip(r, low, high)  y = Identity(c)"),
            ("zeros", "k = Abs(x)  m = ReduceMax<keepdims = 0>(k)  e = Equal(m, zero)  y = Where(e, one, r)"),
            ("equal values", "m = ReduceMax<keepdims = 0>(x)  n = ReduceMin<keepdims = 0>(x)  e = Equal(m, n)  "
                             "z = Not(e)  f = Equal(m, one)  g = And(e, f)  y = Where(g, one, r)"),
            ("one-hot values", "m = ReduceSum<keepdims = 0>(x)  e = Equal(m, one)  y = Where(e, one, r)"),
        ],
    )  # fmt: skip
    def test_a_difference_that_random_inputs_do_not_show(self, tmp_path: Path, pattern: str, body: str) -> None:
        after = f"(float[2,8] x) => (float[2,8] y) {{ r = Neg(x)  {body} }}"
        tensors = [scalar("limit", 1e-3), scalar("low", -50), scalar("high", 50), scalar("zero", 0), scalar("one", 1)]
        found = compared(tmp_path, PLAIN, after, *tensors)
        assert not found.ok
        assert f"output 'y' on {pattern}" in found.message
        assert compared(tmp_path, PLAIN, after, *tensors, extremes=False).ok

    @pytest.mark.parametrize(("pattern", "index"), [("lowest", 0), ("highest", 4999)])
    def test_the_ends_of_a_table(self, tmp_path: Path, pattern: str, index: int) -> None:
        """The seeded inputs have one token each, and none of them is at the table's end."""
        before = "(int64[1] ids) => (float[1,3] y) { y = Gather(table, ids) }"
        after = f"""(int64[1] ids) => (float[1,3] y) <int64 end = {{{index}}}> {{
            g = Gather(table, ids)  e = Equal(ids, end)  n = Neg(g)  y = Where(e, n, g)
        }}"""
        found = compared(tmp_path, before, after, weights("table", 5000, 3))
        assert not found.ok
        assert f"on the {pattern} index everywhere" in found.message

    def test_a_value_that_is_finite_in_the_original_alone(self, tmp_path: Path) -> None:
        before = "(float[2,8] x) => (float[2,8] y) { a = Abs(x)  y = Neg(a) }"
        after = "(float[2,8] x) => (float[2,8] y) { c = Pow(x, ten)  a = Pow(c, tenth)  y = Neg(a) }"
        found = compared(tmp_path, before, after, scalar("ten", 10), scalar("tenth", 0.1), tolerance=1e-4)
        assert "output 'y' on values of 1e4 has NaN or infinity in other places" in found.message

    def test_rounding_that_the_original_itself_has_there_is_no_difference(self, tmp_path: Path) -> None:
        """The fraction of a sum of thousands is rounding alone."""
        before = "(float[2,64] x) => (float[2,1] y) { s = ReduceSum(x, axis)  t = Floor(s)  y = Sub(s, t) }"
        doubled = "n = Neg(x)  h = Sub(n, x)  d = ReduceSum(h, axis)  s = Mul(d, minus)"
        after = before.replace("s = ReduceSum(x, axis)", doubled)
        axis = numpy_helper.from_array(np.int64([1]), "axis")
        found = compared(tmp_path, before, after, axis, scalar("minus", -0.5))
        assert found.ok

    def test_an_input_on_which_the_original_fails_is_said(self, tmp_path: Path) -> None:
        text = "(int64[1] n, float[999,3] x) => (float[1,3] y) { i = Add(n, zero)  y = Gather(x, i) }"
        found = compared(tmp_path, text, text, numpy_helper.from_array(np.int64([0]), "zero"))
        assert found.ok
        assert found.message.endswith("and on 6 more; the original does not run on 1 of the further inputs")

    def test_patterns_follow_the_types_of_the_inputs(self) -> None:
        floats = load(parsed(PLAIN))
        assert [spec.pattern for spec in extreme_inputs(floats, None)] == ["small", "large", "zeros", "ones", "one-hot"]
        ids = load(parsed("(int64[1] i) => (float[1,3] y) { y = Gather(t, i) }", weights("t", 9, 3)))
        specs = extreme_inputs(ids, None)
        assert [spec.pattern for spec in specs] == ["lowest", "highest"]
        assert specs[0].input_ranges == {"i": (0, 9)}
        assert extreme_inputs(floats, FeedSpec(npz="some.npz")) == []


class TestTime:
    def test_inputs_that_have_no_time_are_counted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        run = equivalence.run_comparison

        def within(request: dict[str, object], timeout_s: float, time_share: float) -> object:
            asked.append(time_share * seconds_left())
            return run(request, timeout_s, 0.0)

        monkeypatch.setattr(equivalence, "run_comparison", within)
        with ending_at(time.monotonic() + 60.0):
            found = compared(tmp_path, PLAIN, PLAIN)
        assert found.ok
        assert "agree on 2 inputs" in found.message
        assert found.message.endswith("8 of 8 further inputs were left out for lack of time")
        assert 0.0 < asked[0] <= 60.0

    def test_an_original_that_crashes_on_extreme_inputs_is_compared_without_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = equivalence.run_comparison

        def crash(request: dict[str, object], timeout_s: float, time_share: float) -> object:
            if request["extra"]:
                raise ComparisonError("crashed", "original: run on extra inputs")
            return run(request, timeout_s, time_share)

        monkeypatch.setattr(equivalence, "run_comparison", crash)
        assert compared(tmp_path, PLAIN, PLAIN).ok


class TestTolerances:
    """One small element beside a large one: relative to the scale it may be far off."""

    BEFORE = "(float[2,8] x) => (float[2,8] y) { a = Abs(x)  t = Mul(a, spread)  y = Add(t, spread) }"
    SPREAD = numpy_helper.from_array(np.float32([1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1]), "spread")

    def compare(self, folder: Path, **options: float) -> Equivalence:
        shift = numpy_helper.from_array(np.float32([0, 0, 0, 0, 0, 0, 0, 0.5]), "shift")
        after = self.BEFORE.replace("y = Add(t, spread)", "s = Add(t, spread)  y = Add(s, shift)")
        return compared(folder, self.BEFORE, after, self.SPREAD, shift, **options)

    def test_they_hold_for_every_element(self, tmp_path: Path) -> None:
        assert self.compare(tmp_path).ok
        found = self.compare(tmp_path, rtol=1e-3, atol=1e-3)
        assert not found.ok
        assert "at [0, 7], beyond the tolerances rtol=0.001 and atol=0.001 (2 of 16 elements)" in found.message
        assert self.compare(tmp_path, rtol=1e-3, atol=0.51).ok
        assert self.compare(tmp_path, rtol=0.6).ok
        assert not self.compare(tmp_path, atol=0.3).ok

    def test_they_do_not_replace_the_tolerance_relative_to_the_scale(self, tmp_path: Path) -> None:
        assert not compared(tmp_path, PLAIN, PLAIN.replace("Neg", "Abs"), rtol=10.0, atol=10.0).ok
