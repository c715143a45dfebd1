"""Bundles are written as a whole and as they were compared, or not at all."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rewritegym
from graph_rewrite.delivery import checked_bundle as writing
from graph_rewrite.delivery.bundles.manifest import check_replaceable, read_bundle
from graph_rewrite.delivery.checked_bundle import BundlePart, CheckedBundle, GeneralBundle, checked_bundle
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.ship import UnverifiedModelError, kept_original
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Deployment
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.system import atomic_files
from graph_rewrite.system.atomic_files import replace_folder
from tests.graph_rewrite.delivery.bundle_models import SHAPES, agreeing, expected, ids, made_bundle
from tests.graph_rewrite.symbolic.dynamic_models import transformer

KILLS = 20


@pytest.fixture
def made(tmp_path: Path) -> CheckedBundle:
    return made_bundle(tmp_path, shapes=SHAPES[:1])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[CheckedBundle, CheckedBundle]:
    """Two bundles that tests only read, with two models of single shapes and with one."""
    folder = tmp_path_factory.mktemp("two")
    return made_bundle(folder), made_bundle(folder, shapes=SHAPES[:1])


def content(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, hidden files too."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("name", ["general.onnx", "ids-1x24.onnx", "weights.bin"])
def test_a_file_that_changed_after_the_check_is_never_handed_over(
    made: CheckedBundle, tmp_path: Path, name: str
) -> None:
    file = made.bundle.folder / name
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UnverifiedModelError, match=f"{name} changed after it was verified"):
        made.write_to(out / "b")
    assert list(out.iterdir()) == []


def test_a_bundle_with_a_model_that_differs_is_never_handed_over(tmp_path: Path) -> None:
    made_bundle(tmp_path)
    graph = load(tmp_path / "t.onnx")

    def differing(path: Path, deployment: Deployment) -> Equivalence:
        return Equivalence(False, 1.0, 1e-4, "planted difference")

    parts = [BundlePart(graph, Deployment(), agreeing), BundlePart(graph, Deployment(), differing, {"ids": (1, 2)})]
    with pytest.raises(UnverifiedModelError, match="planted difference"):
        checked_bundle(parts, tmp_path / "work").write_to(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_comparison_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    made_bundle(tmp_path)

    def interrupted(path: Path, deployment: Deployment) -> Equivalence:
        raise KeyboardInterrupt

    gc.collect()
    with pytest.raises(KeyboardInterrupt):
        checked_bundle([BundlePart(load(tmp_path / "t.onnx"), Deployment(), interrupted)], tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_older_bundle_is_replaced_as_a_whole(
    made: CheckedBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(atomic_files, "_exchange", lambda *_: False)
    out = tmp_path / "out"
    made_bundle(tmp_path).write_to(out / "b", lambda staged: (staged / "ids-2x9.onnx.actions.json").touch())
    assert (out / "b" / "ids-2x9.onnx").is_file()
    assert made.write_to(out / "b") == out / "b"
    assert {path.name for path in out.iterdir()} == {"b"}
    assert {path.name for path in (out / "b").iterdir()} == {
        "bundle.json", "general.onnx", "ids-1x24.onnx", "weights.bin"
    }  # fmt: skip
    assert np.allclose(
        rewritegym.session(out / "b").run(None, ids(1, 24))[0], expected(tmp_path, ids(1, 24)), atol=1e-5
    )


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize(
    ("failing", "error"),
    [("weights.bin", OSError), ("bundle.json", KeyboardInterrupt), ("finish", KeyboardInterrupt), ("rename", OSError)],
)
def test_an_interrupted_hand_over_leaves_the_older_bundle_alone(
    two: tuple[CheckedBundle, CheckedBundle],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: str,
    error: type[BaseException],
    can_exchange: bool,
) -> None:
    out, (older, made) = tmp_path / "out", two
    older.write_to(out / "b")
    before, replace_file, rename = content(out), writing.replace_file, os.rename

    def fail(*_: Any) -> None:
        raise error

    def writes(path: Path, what: Any) -> None:
        replace_file(path, what)
        if path.name == failing:
            fail()

    def renames(source: Path, target: Path) -> None:
        if failing == "rename" and Path(target).name == "b" and len(list(Path(source).iterdir())) == 4:
            fail()
        rename(source, target)

    if not can_exchange:
        monkeypatch.setattr(atomic_files, "_exchange", lambda *_: False)
    elif failing == "rename":
        monkeypatch.setattr(atomic_files, "_exchange", fail)
    monkeypatch.setattr(writing, "replace_file", writes)
    monkeypatch.setattr(os, "rename", renames)
    with pytest.raises(error):
        made.write_to(out / "b", fail if failing == "finish" else None)
    assert content(out) == before


def test_a_folder_with_other_files_is_not_replaced(made: CheckedBundle, tmp_path: Path) -> None:
    made.write_to(tmp_path / "b")
    (tmp_path / "b" / "mine.txt").write_text("mine")
    before = content(tmp_path / "b")
    with pytest.raises(UserError, match=r"mine\.txt, which is no part of the bundle"):
        made.write_to(tmp_path / "b")
    assert content(tmp_path / "b") == before


def test_a_link_to_a_bundle_stays_one(made: CheckedBundle, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made.write_to(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert read_bundle(tmp_path / "real").specialised


def test_the_saved_files_go_with_their_object(made: CheckedBundle) -> None:
    folder = made.bundle.folder
    assert folder.is_dir()
    assert made.weight_bytes > 4096


def test_an_original_that_is_kept_is_in_its_bundle_byte_by_byte(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    fixed = materialize(load(path, {"ids": (1, 8)}), tmp_path / "work")
    kept = kept_original(path, Deployment(threads=2), runnable=fixed)
    written = GeneralBundle(kept).write_to(tmp_path / "b")
    assert (written / "general.onnx").read_bytes() == path.read_bytes()
    bundle = read_bundle(written)
    assert bundle.general.deployment.threads == 2
    assert bundle.specialised == ()
    bundle.verify()
    assert np.allclose(rewritegym.session(written).run(None, ids(3, 5))[0], expected(tmp_path, ids(3, 5)))


def test_weights_beside_an_original_go_into_its_bundle(tmp_path: Path) -> None:
    path = transformer(tmp_path / "plain.onnx", layers=1)
    onnx.save_model(
        onnx.load(path), tmp_path / "t.onnx", save_as_external_data=True, location="./a:b.data", size_threshold=0
    )
    fixed = materialize(load(tmp_path / "t.onnx", {"ids": (1, 8)}), tmp_path / "work")
    kept = kept_original(tmp_path / "t.onnx", Deployment(), runnable=fixed)
    written = GeneralBundle(kept).write_to(tmp_path / "b")
    assert set(read_bundle(written).weights) == {"a:b.data"}
    assert np.allclose(rewritegym.session(written).run(None, ids(3, 5))[0], expected(tmp_path, ids(3, 5)))
    check_replaceable(written)
    (written / "a:b.data").write_bytes((written / "a:b.data").read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match=r"a:b\.data is not the file"):
        rewritegym.session(written)


def kill_writers(folder: Path) -> None:
    """Let processes write one or the other bundle to the same place without end, and kill each at a random moment."""
    rng, bundles, output = (
        np.random.default_rng(0),
        [made_bundle(folder), made_bundle(folder, shapes=SHAPES[:1])],
        folder / "b",
    )
    bundles[0].write_to(output)
    found = set()
    for _ in range(KILLS):
        writer, turn = os.fork(), 1
        while writer == 0:
            bundles[turn % 2].write_to(output)
            turn += 1
        time.sleep(float(rng.uniform(0.002, 0.04)))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        whole = read_bundle(output)
        whole.verify()
        found.add(len(whole.specialised))
    assert found == {1, 2}
    bundles[1].write_to(output)
    assert len(read_bundle(output).specialised) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux exchanges two folders in one step")
def test_a_bundle_is_whole_at_any_moment(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.graph_rewrite.delivery import test_checked_bundle as killed\n"
        "killed.kill_writers(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_killed_writers_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / ".b.999999.0123abcd"
    left.mkdir()
    (left / "weights.bin").write_bytes(b"half")
    monkeypatch.setattr(atomic_files, "ABANDONED_S", -1.0)
    monkeypatch.setattr(atomic_files, "_is_alive", lambda process: process != 999999)
    replace_folder(tmp_path / "b", lambda staged: (staged / "x").write_text("x") and None)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_the_list_names_every_file(made: CheckedBundle, tmp_path: Path) -> None:
    written = made.write_to(tmp_path / "b")
    values = json.loads((written / "bundle.json").read_text())
    assert values["general"]["file"] == "general.onnx"
    assert values["specialised"][0]["shapes"] == {"ids": [1, 24]}
    assert set(values["weights"]) == {"weights.bin"}
