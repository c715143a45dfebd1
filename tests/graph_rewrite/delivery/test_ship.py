"""Model files are handed over as they were compared, or not at all."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graph_rewrite.delivery import ship
from graph_rewrite.delivery.deployed import recorded_deployment, session, sidecar_of
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.ship import CheckedModel, UnverifiedModelError, checked_model, kept_original
from graph_rewrite.latency import Deployment
from graph_rewrite.onnx_files import saving
from graph_rewrite.onnx_files.loading import load
from tests.envs.fakes import write_tower

OTHER = Deployment(threads=2)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return write_tower(tmp_path / "tower.onnx", 2, 64)


def check(original: Path) -> CheckedModel:
    return checked_model(load(original), original, OTHER, workspace=original.parent / "work")


def corrupt(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def test_a_checked_model_is_copied_with_its_deployment(original: Path, tmp_path: Path) -> None:
    checked = check(original)
    assert checked.outcome.ok
    path = checked.write_to(tmp_path / "run" / "result.onnx")
    assert path.read_bytes() == checked.path.read_bytes()
    assert recorded_deployment(path) == checked.deployment == OTHER
    assert sidecar_of(path).is_file()
    feeds = {"x": np.ones((64, 64), np.float32)}
    assert session(path).run(None, feeds)[0].shape == (64, 64)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights go beside the model, as those of large models do."""
    monkeypatch.setattr(saving, "INLINE_TOTAL", 0)


@pytest.mark.usefixtures("beside")
def test_weights_beside_the_model_go_with_it_and_take_its_name(original: Path, tmp_path: Path) -> None:
    checked = check(original)
    path = checked.write_to(tmp_path / "run" / "result.onnx")
    assert {file.name for file in path.parent.iterdir()} == {path.name, "result.onnx.data", sidecar_of(path).name}
    onnx.checker.check_model(str(path))
    feeds = {"x": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}
    assert np.allclose(session(path).run(None, feeds)[0], session(checked.path).run(None, feeds)[0])
    again = checked.write_to(path)
    assert load(again).hash == load(original).hash


@pytest.mark.usefixtures("beside")
def test_weights_of_an_older_result_go_unless_another_model_reads_them(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "run" / "result.onnx"
    always = {path.name, sidecar_of(path).name}
    for data in ("result.onnx.data", "result.onnx.1.data", "result.onnx.data"):
        check(original).write_to(path)
        assert {file.name for file in path.parent.iterdir()} == {*always, data}
    copied = onnx.load(path, load_external_data=False)
    for entry in (entry for tensor in copied.graph.initializer for entry in tensor.external_data):
        entry.value = f"./{entry.value}" if entry.key == "location" else entry.value
    (copy := path.with_name("copy.onnx")).write_bytes(copied.SerializeToString())
    kept_original(original, OTHER).write_to(path)
    assert {file.name for file in path.parent.iterdir()} == {*always, copy.name, "result.onnx.data"}
    assert load(copy).hash == load(original).hash


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
def test_a_file_that_changed_after_the_check_is_never_handed_over(original: Path, tmp_path: Path, name: str) -> None:
    checked = check(original)
    corrupt(checked.path.with_name(name), 100)
    path = tmp_path / "run" / "result.onnx"
    with pytest.raises(UnverifiedModelError, match="changed after it was verified"):
        checked.write_to(path)
    assert not path.exists()
    assert not sidecar_of(path).exists()


@pytest.mark.usefixtures("beside")
def test_an_interrupted_hand_over_leaves_the_older_result_and_no_weights(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, path = check(original), tmp_path / "run" / "result.onnx"
    checked.write_to(path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    replace_file = ship.replace_file

    def interrupted(file: Path, content: Any) -> None:
        if file == path:
            raise KeyboardInterrupt
        replace_file(file, content)

    monkeypatch.setattr(ship, "replace_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checked.write_to(path)
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_model_that_disagrees_with_the_original_is_never_handed_over(original: Path, tmp_path: Path) -> None:
    other = write_tower(tmp_path / "other.onnx", 3, 64)
    checked = checked_model(load(other), original, OTHER, workspace=tmp_path / "work")
    assert not checked.outcome.ok
    with pytest.raises(UnverifiedModelError, match="was not verified"):
        checked.write_to(tmp_path / "result.onnx")
    assert not (tmp_path / "result.onnx").exists()


def test_the_saved_file_goes_with_its_object(original: Path) -> None:
    checked = check(original)
    folder = checked.path.parent
    assert folder.is_dir()
    del checked
    gc.collect()
    assert not folder.exists()


def test_a_comparison_that_breaks_off_leaves_no_file(original: Path) -> None:
    def broken(path: Path, deployment: Deployment) -> Equivalence:
        raise KeyboardInterrupt

    work = original.parent / "work"
    with pytest.raises(KeyboardInterrupt):
        checked_model(load(original), original, OTHER, workspace=work, compare=broken)
    assert list(work.iterdir()) == []
