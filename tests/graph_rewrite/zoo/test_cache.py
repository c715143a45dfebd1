"""The zoo's cache on disk and its command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_rewrite import zoo
from graph_rewrite.zoo import disk_cache, exporter
from graph_rewrite.zoo.__main__ import main
from tests.graph_rewrite.zoo.networks import TINY_BERT, relative_error, run_onnx, run_torch


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache").resolve()
        patch.setenv("REWRITEGYM_CACHE", str(folder))
        yield folder / "zoo"


def test_command_lists_models_and_exports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    listing = capsys.readouterr().out
    assert all(name in listing for name in zoo.names())
    assert "108.89 M" in listing
    assert main(["bert", *(f"{key}={value}" for key, value in TINY_BERT.items())]) == 0
    assert Path(capsys.readouterr().out.strip()) == zoo.export("bert", **TINY_BERT)
    assert main(["bert", "layers"]) == 2
    assert "name=value, got 'layers'" in capsys.readouterr().err


def test_help_names_the_program_as_it_was_called() -> None:
    for command in (["rewritegym", "zoo"], ["graph_rewrite.zoo"]):
        result = subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True, check=True)
        called = "rewritegym zoo" if len(command) > 1 else "python -m graph_rewrite.zoo"
        assert result.stdout.startswith(f"usage: {called} [-h]")


def test_large_weights_go_to_one_file_beside_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_EXTERNAL_DATA_BYTES", 1000)
    params = {**TINY_BERT, "seed": 5}
    path = zoo.export("bert", **params)
    data = path.with_name("model.onnx.data")
    assert data.stat().st_size > path.stat().st_size
    assert not path.is_symlink()
    assert data.stat().st_nlink == 1
    inputs = zoo.example_inputs("bert", **params)
    expected = run_torch(zoo.build("bert", **params), inputs)
    assert relative_error(run_onnx(path, inputs), expected) < 1e-4
    data.write_bytes(data.read_bytes()[:-1])
    assert relative_error(run_onnx(zoo.export("bert", **params), inputs), expected) < 1e-4


def test_second_export_is_a_cache_hit_without_pytorch(cache: Path) -> None:
    path = zoo.export("bert", **TINY_BERT)
    assert path.parent.parent == cache
    before = path.stat()
    program = (
        f"import sys; from graph_rewrite import zoo; print(zoo.export('bert', **{TINY_BERT!r}));"
        "assert 'torch' not in sys.modules"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (Path(result.stdout.strip()), result.stderr) == (path, "")
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_export_prints_nothing_and_is_reproducible(tmp_path: Path) -> None:
    path = zoo.export("bert", **TINY_BERT)
    arguments = [f"{key}={value}" for key, value in TINY_BERT.items()]
    command = [sys.executable, "-m", "graph_rewrite.zoo", "bert", *arguments]
    environment = {**os.environ, "REWRITEGYM_CACHE": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    again = Path(result.stdout.removesuffix("\n"))
    assert again == tmp_path.resolve() / "zoo" / path.parent.name / path.name
    assert result.stderr == ""
    assert again.read_bytes() == path.read_bytes()


def test_other_parameters_are_other_files() -> None:
    paths = {zoo.export("bert", **{**TINY_BERT, **change}) for change in ({}, {"seq_len": 8}, {"seed": 1})}
    assert len(paths) == 3


@pytest.mark.parametrize(
    "damage", ["truncated", "missing", "no manifest", "manifest is not JSON", "manifest is a list"]
)
def test_damaged_entries_are_exported_again(damage: str) -> None:
    path = zoo.export("bert", **TINY_BERT)
    content = path.read_bytes()
    manifest = path.with_name("manifest.json")
    if damage == "truncated":
        path.write_bytes(content[:-100])
    elif damage == "missing":
        path.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text("[1]" if damage == "manifest is a list" else '{"files": ')
    assert zoo.export("bert", **TINY_BERT) == path
    assert path.read_bytes() == content
    assert json.loads(manifest.read_text())["params"]["layers"] == 1


def test_failed_export_leaves_nothing_behind(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("written")
        raise RuntimeError("exporter broke")

    with pytest.raises(RuntimeError, match="exporter broke"):
        disk_cache.cached_folder("failing", fail, {})
    assert [path.name for path in cache.glob("*failing*") if path.suffix != ".lock"] == []


def test_full_disk_is_a_clear_error_and_leaves_nothing_behind(cache: Path) -> None:
    def fill(_folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"cannot write the model cache .*No space left.*set REWRITEGYM_CACHE") as raised:
        disk_cache.cached_folder("full", fill, {})
    assert raised.value.errno == 28
    assert [path.name for path in cache.glob("*full*") if path.suffix != ".lock"] == []


def test_unusable_cache_folder_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="set REWRITEGYM_CACHE to another folder"):
        zoo.export("bert", **TINY_BERT)


def test_left_overs_of_a_killed_process_are_removed(cache: Path) -> None:
    left_over = cache / ".killed-abc" / "new"
    left_over.mkdir(parents=True)
    (left_over / "model.onnx").write_text("half")
    folder = disk_cache.cached_folder("killed", lambda new: (new / "x").touch(), {})
    assert (folder / "x").exists()
    assert not left_over.parent.exists()


def test_concurrent_requests_export_once(cache: Path) -> None:
    calls: list[Path] = []
    start = threading.Barrier(4)

    def create(folder: Path) -> None:
        calls.append(folder)
        (folder / "x").write_text("content")

    def request() -> None:
        start.wait()
        assert (disk_cache.cached_folder("contended", create, {}) / "x").read_text() == "content"

    threads = [threading.Thread(target=request) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert (cache / "contended" / "x").exists()


def test_links_to_the_cache_folder_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "link"))
    assert disk_cache.zoo_folder() == (tmp_path / "real").resolve() / "zoo"


def test_origin_of_an_export_is_the_model_that_builds_it() -> None:
    params = {**TINY_BERT, "seed": 3}
    path = zoo.export("bert", **params)
    found = zoo.origin(path)
    assert found is not None
    name, settings = found
    assert name == "bert"
    assert settings == {**zoo.defaults("bert"), **params}
    assert zoo.export(name, **settings) == path


def test_other_files_have_no_origin(tmp_path: Path) -> None:
    path = zoo.export("bert", **TINY_BERT)
    manifest = json.loads(path.with_name("manifest.json").read_text(encoding="utf-8"))
    copy = tmp_path / "model.onnx"
    copy.write_bytes(path.read_bytes())
    assert zoo.origin(copy) is None  # no manifest
    changes: list[dict[str, object]] = [
        {"versions": {**manifest["versions"], "torch": "1.0"}}, {"source": "another"}, {"model": "none"},
        {"params": {"layers": 0}}, {"params": 3},
    ]  # fmt: skip
    for change in changes:
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, **change}), encoding="utf-8")
        assert zoo.origin(copy) is None, change
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    assert zoo.origin(copy) is None
    assert zoo.origin(path.with_name("other.onnx")) is None
