"""The meter of ONNX Runtime times a model under the session settings that it asks for."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graph_rewrite.latency import MeasurementCache, OrtMeter
from graph_rewrite.runtime.ort_worker.wire import Message
from tests.graph_rewrite.latency.conftest import Model

SETTINGS = (("enable_mem_pattern", False), ("threads", 2))


def requests_of(meter: OrtMeter) -> list[Message]:
    """Collect what the meter asks its worker from now on."""
    asked: list[Message] = []
    ask = meter._ask

    def noted(request: Message) -> Message:
        asked.append(request)
        return ask(request)

    meter._ask = noted  # type: ignore[method-assign]
    return asked


def test_each_side_runs_as_it_asks(make_meter: Callable[..., OrtMeter]) -> None:
    meter = make_meter()
    asked = requests_of(meter)
    baseline, plain = Model("baseline", 2), Model("plain", 1)
    changed = replace(plain, hash="changed", session_settings=SETTINGS)
    assert meter.measure(changed).ok
    assert meter.compare(plain, changed, meter.plans["screen"]).ok
    # The baseline runs plainly whatever it asks for.
    assert meter.measure(replace(baseline, session_settings=SETTINGS)).ok
    sides = [(request["baseline"]["deployment"], request["candidate"]["deployment"]) for request in asked]
    usual = meter.deployment.to_json()
    own = {**usual, "threads": 2, "enable_mem_pattern": False}
    # A measurement that other load disturbed is taken again.
    assert len(sides) >= 3
    assert all(side == (usual, own) for side in sides)


def test_the_cache_tells_settings_apart(make_meter: Callable[..., OrtMeter], tmp_path: Any) -> None:
    cache = MeasurementCache(tmp_path / "cache.sqlite")
    meter = make_meter(cache=cache)
    meter.measure(Model("model", 1))
    again = make_meter(cache=cache)
    again.measure(Model("model", 1))
    assert again.measurements == 0
    again.measure(Model("model", 1, session_settings=SETTINGS))
    assert again.measurements == 1
