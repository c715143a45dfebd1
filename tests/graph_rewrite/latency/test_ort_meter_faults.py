"""End-to-end measurement of models that fail, in every way in which a model can fail."""

import errno
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite.latency import BaselineError, Deployment, MeasurementCache, OrtMeter
from tests.runtimes import every_provider

MakeMeter = Callable[..., OrtMeter]


@every_provider
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("truncated", "good.onnx|Protobuf|ModelProto|parse|read_model|Unable to read"),
        ("empty", "good.onnx|ModelProto|graph|read_model|Unable to read"),
        ("unknown", "NoSuchOperator"),
        ("foreign", "inputs that the baseline has not: z"),
    ],
)
def test_a_broken_file_is_a_result(
    make_meter: MakeMeter, model: Any, contents: dict[str, bytes], content: str, message: str, provider: str
) -> None:
    meter = make_meter(deployment=Deployment(provider))
    broken = meter.measure(model("broken", content=contents[content]))
    assert broken.status == "error"
    assert not broken.ok
    assert (broken.ms, broken.speedup, broken.ci95) == (math.inf, 0.0, (0.0, 0.0))
    assert any(part in broken.message for part in message.split("|")), broken.message
    assert meter.measure(model("fine", 1)).ok


@every_provider
@pytest.mark.parametrize(("fault", "status"), [("segfault", "crash"), ("hang", "hang")])
def test_a_fatal_model_is_a_result(
    make_meter: MakeMeter,
    model: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fault: str,
    status: str,
    provider: str,
) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKER_FAULT", f"{fault}:fatal")
    cache = MeasurementCache(tmp_path / "cache.sqlite3")
    options = {"cache": cache, "deployment": Deployment(provider)}
    meter = make_meter(**options, timeout_s=3.0 if provider == "openvino" else 1.5)
    assert meter.measure(model("fine", 1)).ok
    fatal = meter.measure(model("fatal", 1))
    assert fatal.status == status
    assert fatal.speedup == 0.0
    taken = meter.measurements
    # One crash is enough, for this run: the next run tries again.
    assert meter.measure(model("fatal", 1)) == meter.measure(model("fatal", 1), "full") == fatal
    assert meter.measurements == taken
    assert meter.measure(model("fine2", 1)).ok
    monkeypatch.delenv("REWRITEGYM_WORKER_FAULT")
    assert make_meter(**options).measure(model("fatal", 1)).ok


@pytest.mark.skipif(os.name != "posix", reason="memory limits need a POSIX system")
@every_provider
def test_out_of_memory_is_a_result(
    make_meter: MakeMeter, model: Any, contents: dict[str, bytes], provider: str
) -> None:
    meter = make_meter(memory_limit_mb=6000, deployment=Deployment(provider))
    greedy = meter.measure(model("greedy", content=contents["huge"]))
    assert greedy.status == "oom", greedy.message
    assert meter.measure(model("fine", 1)).ok


def test_memory_limit_and_cuda_do_not_go_together(make_meter: MakeMeter) -> None:
    with pytest.raises(ValueError, match="CPU only"):
        make_meter(deployment=Deployment("cuda"), memory_limit_mb=1000)


def test_a_full_disk_fails_the_candidate_only_while_it_is_full(make_meter: MakeMeter, model: Any) -> None:
    disk_is_full = False

    def write(graph: Any, folder: Path) -> Path:
        if disk_is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        path = folder / f"{graph.hash}.onnx"
        path.write_bytes(contents_of(graph))
        return path

    from graph_rewrite.latency.models import noise_model

    def contents_of(graph: Any) -> bytes:
        return noise_model(channels=16, image=16, layers=graph.layers).SerializeToString()

    meter = make_meter(writer=write)
    assert meter.measure(model("before", 1)).ok
    disk_is_full = True
    failed = meter.measure(model("a", 1))
    assert failed.status == "error"
    assert "No space left on device" in failed.message
    disk_is_full = False
    assert meter.measure(model("a", 1)).ok


def test_a_bug_in_the_writer_is_not_hidden(make_meter: MakeMeter, model: Any) -> None:
    def write(graph: Any, folder: Path) -> Path:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        make_meter(writer=write).measure(model("a", 1))


@every_provider
def test_a_broken_baseline_is_an_error(
    make_meter: MakeMeter, model: Any, contents: dict[str, bytes], provider: str
) -> None:
    meter = make_meter(model("broken", content=contents["unknown"]), deployment=Deployment(provider))
    with pytest.raises(BaselineError, match=r"baseline model cannot be measured.*NoSuchOperator.*--input-data"):
        meter.measure(model("a", 1))

    def full(graph: Any, folder: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BaselineError, match="cannot be written"):
        make_meter(writer=full).measure(model("a", 1))
