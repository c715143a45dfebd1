"""Models in OpenVINO: sessions that run as those of ONNX Runtime do, and deployments that say what OpenVINO is told."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graph_rewrite.delivery.deployment_code import deployment_code
from graph_rewrite.latency import ProviderError, resolve_provider
from graph_rewrite.runtime import PROVIDERS, Deployment, open_session, runtime_of
from graph_rewrite.runtime.ort_worker.runtimes import openvino_runtime
from tests.graph_rewrite.sample_models import parsed, weights
from tests.runtimes import needs_openvino

OPENVINO = Deployment("openvino")
TEXT = """(float[n,4] x, int64[2] idle, bool[4] keep) => (float[n,8] z, float[n,8] y, float[n,4] x2, int64[2] i)
    { h = MatMul(x, w)  y = Relu(h)  z = Identity(y)  k = Cast<to = 1>(keep)  x2 = Mul(x, k)  i = Identity(idle) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two outputs of one value, one that is an input, and an open dimension."""
    onnx.save(parsed(TEXT, weights("w", 4, 8)), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def feeds(rows: int = 3, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 4)).astype(np.float32)
    return {"x": x, "idle": np.array([3, 4]), "keep": np.array([True, False, True, True])}


@needs_openvino
class TestSessions:
    def test_the_interface_is_that_of_onnx_runtime(self, model: Path) -> None:
        ours, theirs = open_session(model, OPENVINO), open_session(model, Deployment())
        for one, other in zip(
            [*ours.get_inputs(), *ours.get_outputs()], [*theirs.get_inputs(), *theirs.get_outputs()], strict=True
        ):
            assert (one.name, one.type) == (other.name, other.type)
            assert [d for d in one.shape if isinstance(d, int)] == [d for d in other.shape if isinstance(d, int)]
        for rows in (3, 5):
            for found, wanted in zip(ours.run(None, feeds(rows)), theirs.run(None, feeds(rows)), strict=True):
                assert found.dtype == wanted.dtype
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        [named] = ours.run(["y"], feeds())
        np.testing.assert_allclose(named, theirs.run(["y"], feeds())[0], rtol=1e-5, atol=1e-6)

    def test_later_runs_change_neither_outputs_nor_inputs(self, model: Path) -> None:
        session, given = open_session(model, OPENVINO), feeds()
        first = session.run(None, given)
        before = [array.copy() for array in first]
        session.run(None, feeds(seed=1))
        for now, then in zip(first, before, strict=True):
            np.testing.assert_array_equal(now, then)
        np.testing.assert_array_equal(given["x"], feeds()["x"])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"idle": None}, "is given"),
            ({"more": np.zeros(1)}, "is given"),
            ({"x": np.zeros((3, 4))}, "'x' is of float32, and is given as float64"),
            ({"x": np.zeros((3, 5), np.float32)}, "shape"),
        ],
    )
    def test_wrong_inputs_are_refused(self, model: Path, change: dict[str, Any], message: str) -> None:
        session = open_session(model, OPENVINO)
        session.run(None, feeds())  # its values would stand in for what is missing
        wrong = {name: value for name, value in {**feeds(), **change}.items() if value is not None}
        with pytest.raises((ValueError, RuntimeError), match=message):
            session.run(None, wrong)

    def test_unknown_outputs_and_options_of_another_runtime_are_refused(self, model: Path) -> None:
        session: Any = open_session(model, OPENVINO)
        with pytest.raises(ValueError, match="no output 'nothing'"):
            session.run(["nothing"], feeds())
        with pytest.raises(ValueError, match="ONNX Runtime"):
            session.run(None, feeds(), object())

    def test_several_threads_run_at_once(self, model: Path) -> None:
        session, found = open_session(model, OPENVINO), dict[int, Any]()
        wanted = {seed: open_session(model, Deployment()).run(["y"], feeds(64, seed))[0] for seed in range(4)}

        def run(seed: int) -> None:
            for _ in range(20):
                found[seed] = session.run(["y"], feeds(64, seed))[0]

        threads = [threading.Thread(target=run, args=(seed,)) for seed in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for seed, value in wanted.items():
            np.testing.assert_allclose(found[seed], value, rtol=1e-5, atol=1e-6)

    def test_types_that_numpy_has_not_are_refused_when_the_model_is_opened(self, tmp_path: Path) -> None:
        path = tmp_path / "narrow.onnx"
        onnx.save(parsed("(bfloat16[2] x) => (bfloat16[2] y) { y = Neg(x) }"), path)
        with pytest.raises(RuntimeError, match="'x' is of bf16"):
            open_session(path, OPENVINO)

    def test_the_code_without_rewritegym_computes_the_same(self, model: Path) -> None:
        names: dict[str, Any] = {}
        exec(deployment_code(OPENVINO, model)["python"], names)
        found = names["session"](feeds()).to_tuple()
        for one, other in zip(found, open_session(model, OPENVINO).run(None, feeds()), strict=True):
            np.testing.assert_array_equal(one, other)
        assert names["session"].get_property("INFERENCE_NUM_THREADS") == 1
        assert names["session"].get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"

    def test_the_profile_names_what_runs(self, model: Path, tmp_path: Path) -> None:
        session, told = runtime_of("openvino").open_profiled(str(model), OPENVINO, str(tmp_path))
        for _ in range(3):
            session.run(None, feeds())
        kernels = told(1)
        product = next(kernel for kernel in kernels if kernel["op"] == "MatMul")
        assert product["us"] >= 0.0
        assert product["inputs"][0] == ("float", [3, 4])
        assert product["outputs"] == [("float", [3, 8])]
        assert not any(kernel["op"] in ("Parameter", "Const", "Input") for kernel in kernels)


class TestDeployments:
    def test_only_provider_and_threads_are_told(self) -> None:
        assert OPENVINO.to_json() == {**Deployment().to_json(), "provider": "openvino"}
        assert Deployment.from_json(OPENVINO.to_json()) == OPENVINO
        assert OPENVINO.key != Deployment().key

    @pytest.mark.parametrize(
        "options",
        [
            {"optimization_level": "none"},
            {"disabled_optimizers": ["NchwcTransformer"]},
            {"nchwc_block": 16},
            {"custom_ops": ("lib.so",)},
        ],
    )
    def test_what_openvino_would_ignore_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=f"{next(iter(options))}: for ONNX Runtime, and ignored by OpenVINO"):
            Deployment("openvino", **options)
        with pytest.raises(ValueError, match="allow_spinning: for ONNX Runtime"):
            OPENVINO.with_settings({"allow_spinning": False})

    def test_a_graph_asks_for_threads_alone(self) -> None:
        class Asking:
            disabled_optimizers = frozenset({"NchwcTransformer"})
            session_settings = (("allow_spinning", False), ("threads", 3))

        assert OPENVINO.asked_by(Asking()) == Deployment("openvino", 3)

    def test_the_reference_is_onnx_runtime_without_optimisations(self) -> None:
        assert Deployment("openvino", 2).unoptimised() == Deployment("cpu", 2, "none")
        assert Deployment("openvino", 2).plain() == Deployment("openvino", 2)

    def test_every_provider_has_its_runtime(self) -> None:
        for provider in PROVIDERS:
            assert list(runtime_of(provider).version()) == ["openvino" if provider == "openvino" else "onnxruntime"]

    def test_openvino_that_is_not_installed_is_named_with_the_remedy(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(openvino_runtime, "_version", lambda: "not installed")
        with pytest.raises(ProviderError, match=r"does not work here: .*pip install 'rewritegym\[openvino\]'"):
            resolve_provider("openvino")
        with pytest.raises(RuntimeError, match=r"OpenVINO is not installed: pip install 'rewritegym\[openvino\]'"):
            open_session(model, OPENVINO)
        assert runtime_of("openvino").version() == {"openvino": "not installed"}
