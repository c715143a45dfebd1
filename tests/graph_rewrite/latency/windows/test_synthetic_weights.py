"""Windows are timed with synthetic weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_rewrite import Graph, Rewriter
from graph_rewrite.latency.windows.synthetic_weights import with_synthetic_weights
from graph_rewrite.latency.windows.window import shape_key
from graph_rewrite.onnx_files.assembly import model


class TestSyntheticWeights:
    """Windows are timed with random weights in place of large ones."""

    def window(self) -> Graph:
        from graph_rewrite.rules import find_rule

        rng = np.random.default_rng(0)
        weights = {"w": rng.standard_normal((48, 48, 3, 3)), "v": rng.standard_normal((48, 48, 3, 3))}
        body = "a = Conv<pads=[1,1,1,1]>(x, w, b)  c = Conv<pads=[1,1,1,1]>(a, v)  y = Conv<pads=[1,1,1,1]>(c, w)"
        graph = model(f"(float[1,48,8,8] x) => (y) {{ {body} }}", b=rng.standard_normal(48), **weights)
        rewriter = Rewriter([find_rule("WinogradRows2")], granularity="site", deployment=False)
        return rewriter.candidates(graph)[0].apply()

    def test_nothing_is_folded_for_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import graph_rewrite.operators.folding as fold

        graph = self.window()
        assert any(c.expression is not None and c.type.size > 4096 for c in graph.constants.values())
        monkeypatch.setattr(fold, "run_operator", lambda *args: pytest.fail("a weight was computed"))
        for value, constant in with_synthetic_weights(graph).constants.items():
            assert constant.type == graph.constants[value].type
            if constant.type.size > 4096:
                assert constant.numpy().shape == constant.type.shape
                assert np.isfinite(constant.numpy()).all()
                assert constant.numpy().std() > 0.0

    def test_structure_and_small_constants_stay(self) -> None:
        graph = self.window()
        other = with_synthetic_weights(graph)
        assert other.nodes is graph.nodes
        assert shape_key(other) == shape_key(graph)
        assert other.hash != graph.hash
        small = [value for value, constant in graph.constants.items() if constant.type.size <= 4096]
        assert small
        assert all(other.constants[value] is graph.constants[value] for value in small)
        # What is one weight at two places stays one, and different ones stay different.
        assert len({c.digest for c in other.constants.values()}) == len({c.digest for c in graph.constants.values()})

    def test_alike_windows_become_equal(self) -> None:
        assert with_synthetic_weights(self.window()).hash == with_synthetic_weights(self.window()).hash

    def test_they_run(self, tmp_path: Path) -> None:
        import onnxruntime as ort

        from graph_rewrite.onnx_files.saving import materialize

        path = materialize(with_synthetic_weights(self.window()), tmp_path)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {session.get_inputs()[0].name: np.ones((1, 48, 8, 8), np.float32)})
        assert np.isfinite(found).all()
        assert 1e-3 < np.abs(found).max() < 1e3
