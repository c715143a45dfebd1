"""The machine report."""

import json
from pathlib import Path

from graph_rewrite.latency import device_name, machine_report


def test_machine_report(lock_path: Path) -> None:
    report = machine_report(lock_path=lock_path)
    assert json.loads(json.dumps(report)) == report
    assert report["provider"] in ("cpu", "cuda")
    assert "CPUExecutionProvider" in report["providers"]
    assert report["peak_gflops"] > 0.1
    assert set(report["versions"]) == {"python", "onnxruntime", "onnx", "numpy"}
    noise = report["noise"]
    assert noise["model_ms"] > 0
    assert noise["ci95"][0] < noise["ci95"][1]
    assert 0 <= noise["between_instances_percent"] < 100


def test_device_name_is_stable_and_tells_providers_apart() -> None:
    assert device_name("cpu") == device_name("cpu") != ""
    assert device_name("cuda") != device_name("cpu")
