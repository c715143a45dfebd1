"""Bundles: right outputs at every shape, weights stored once, and nothing that is not what was written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import rewritegym
from graph_rewrite.delivery.bundles import session as bundle_session
from graph_rewrite.delivery.bundles.code import bundle_code
from graph_rewrite.delivery.bundles.manifest import check_replaceable, file_names, read_bundle
from graph_rewrite.delivery.bundles.session import BundleSession, shape_of
from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.weight_files import weight_files
from tests.graph_rewrite.delivery.bundle_models import SHAPES, expected, ids, made_bundle


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that tests only read."""
    folder = tmp_path_factory.mktemp("bundle")
    return made_bundle(folder).write_to(folder / "t.optimized")


@pytest.fixture
def bundle(written: Path, tmp_path: Path) -> Path:
    """A bundle that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "t.optimized"))


def opened(path: Path, **overrides: Any) -> BundleSession:
    session = rewritegym.session(path, **overrides)
    assert isinstance(session, BundleSession)
    return session


@pytest.mark.parametrize(
    ("shape", "file"),
    [((1, 24), "ids-1x24.onnx"), ((2, 9), "ids-2x9.onnx"), ((1, 9), "general.onnx"), ((7, 48), "general.onnx")],
)
def test_each_run_takes_the_model_for_its_shapes(written: Path, shape: tuple[int, int], file: str) -> None:
    session, feeds = opened(written), ids(*shape)
    assert session.model_for(feeds).file == file
    found = session.run(["hidden"], feeds)[0]
    assert np.allclose(found, expected(written.parent, feeds), atol=1e-5)
    values = {"ids": onnxruntime.OrtValue.ortvalue_from_numpy(feeds["ids"])}
    assert session.model_for(values).file == file
    assert np.array_equal(session.run_with_ort_values(None, values)[0].numpy(), found)


def test_a_session_has_the_inputs_and_errors_of_the_model_for_all_shapes(written: Path) -> None:
    session = opened(written / "bundle.json")
    assert session.get_inputs()[0].shape == ["batch", "sequence"]
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ValueError, match="ids"):
        session.run(None, {})
    with pytest.raises(AttributeError):
        session.no_such_method()
    assert shape_of([[1, 2], [3]]) is None
    assert shape_of([[1, 2, 3]]) == (1, 3)


def test_sessions_open_when_they_are_needed_and_once(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, open_session = [], bundle_session.open_session

    def counting(path: Path, deployment: Any) -> Any:
        files.append(path.name)
        return open_session(path, deployment)

    monkeypatch.setattr(bundle_session, "open_session", counting)
    session = opened(written)
    assert files == []
    feeds = [ids(1, 24), ids(2, 9)] * 8
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: session.run(None, one)[0], feeds))
    assert sorted(files) == ["ids-1x24.onnx", "ids-2x9.onnx"]
    assert all(
        np.allclose(got, expected(written.parent, one), atol=1e-5) for got, one in zip(found, feeds, strict=True)
    )
    session.open_all()
    assert sorted(files) == ["general.onnx", "ids-1x24.onnx", "ids-2x9.onnx"]


def test_overrides_hold_for_every_model(written: Path) -> None:
    session = opened(written, threads=2, allow_spinning=False)
    for shape in (*SHAPES, (3, 3)):
        options = session.session_for(ids(*shape)).get_session_options()
        assert options.intra_op_num_threads == 2
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(UserError, match="no session setting is named 'thread'"):
        rewritegym.session(written, thread=2)


def test_equal_tensors_are_stored_once(written: Path) -> None:
    names = ("general.onnx", "ids-1x24.onnx", "ids-2x9.onnx")
    assert {file.name for file in written.iterdir()} == {*names, "bundle.json", "weights.bin"}
    models = [onnx.load(written / name, load_external_data=False) for name in names]
    for name in names:
        onnx.checker.check_model(str(written / name))
    places = [
        {(e.key, e.value) for t in m.graph.initializer for e in t.external_data if e.key == "offset"} for m in models
    ]
    weights = {t.name: t for m in models for t in onnx.load(written / "general.onnx").graph.initializer}
    large = sum(len(t.raw_data) >= 1024 for t in weights.values())
    assert large > 4
    assert len(places[0] & places[1] & places[2]) >= large - 1, "the table of positions is sliced in the fixed models"
    distinct = set().union(*places)
    assert (written / "weights.bin").stat().st_size <= 4096 * len(distinct)
    assert all(weight_files(written / name) == ["weights.bin"] for name in names)


def test_a_model_of_a_bundle_is_a_model_by_itself(written: Path) -> None:
    feeds = ids(1, 24)
    alone = rewritegym.session(written / "ids-1x24.onnx")
    assert np.allclose(alone.run(None, feeds)[0], expected(written.parent, feeds), atol=1e-5)
    assert load(written / "ids-1x24.onnx").nodes


@pytest.mark.parametrize("name", ["ids-1x24.onnx", "general.onnx", "weights.bin"])
def test_a_file_that_was_changed_is_refused(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name} is not the file that the bundle was written with"):
        rewritegym.session(bundle)
    (bundle / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        rewritegym.session(bundle)


def test_a_link_out_of_the_folder_is_refused(bundle: Path, tmp_path: Path) -> None:
    (bundle / "weights.bin").rename(tmp_path / "elsewhere.bin")
    (bundle / "weights.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(UserError, match="a link out of the bundle's folder"):
        rewritegym.session(bundle)


def changed(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest.update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(format="other"), "not the list of a bundle"),
        (changed(version=2), "of version 2"),
        (changed(general=None), "is the file damaged"),
        (changed(weights={"../weights.bin": "0" * 64}), "outside the folder"),
        (changed(weights={"sub\\..\\..\\weights.bin": "0" * 64}), "outside the folder"),
        (changed(weights={"/etc/passwd": "0" * 64}), "outside the folder"),
        (changed(weights={"weights.bin": "?"}), "no digest"),
        (lambda manifest: manifest["specialised"][0].pop("shapes"), "without shapes"),
        (lambda manifest: manifest["general"]["deployment"].update(threads=0), "threads must be at least 1"),
    ],
)
def test_a_damaged_list_is_an_error_that_names_it(bundle: Path, change: Any, message: str) -> None:
    values = json.loads((bundle / "bundle.json").read_text())
    change(values)
    (bundle / "bundle.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=message) as raised:
        rewritegym.session(bundle)
    assert "bundle.json" in str(raised.value)


def test_what_is_no_bundle_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a folder without bundle\.json"):
        rewritegym.session(tmp_path)
    with pytest.raises(UserError, match="there is no such bundle"):
        rewritegym.session(tmp_path / "nowhere" / "bundle.json")
    (tmp_path / "bundle.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match="not JSON"):
        rewritegym.session(tmp_path)
    (tmp_path / "bundle.json").write_bytes(b" " * (2 << 20))
    with pytest.raises(UserError, match="too large"):
        rewritegym.session(tmp_path)


def test_models_for_other_cpus_are_refused_before_the_first_run(bundle: Path) -> None:
    values = json.loads((bundle / "bundle.json").read_text())
    values["specialised"][1]["deployment"]["nchwc_block"] = 4
    (bundle / "bundle.json").write_text(json.dumps(values))
    with pytest.raises(RuntimeError, match=r"ids-2x9\.onnx has operators in ONNX Runtime's layout"):
        rewritegym.session(bundle)


def test_files_are_named_after_shapes() -> None:
    shapes: list[dict[str, tuple[int, ...]]] = [{"ids": (1, 64), "mask": (1, 64)}, {"ids": (1, 128), "mask": (1, 128)}]
    assert file_names(shapes) == ["ids-1x64.onnx", "ids-1x128.onnx"]
    same: list[dict[str, tuple[int, ...]]] = [{"x": (1,), "past": (1, 8)}, {"x": (1,), "past": (1, 16)}]
    assert file_names(same) == ["x-1-past-1x8.onnx", "x-1-past-1x16.onnx"]
    strange: list[dict[str, tuple[int, ...]]] = [{"../a b": (2,)}, {"../a:b": (2,)}, {"general": ()}]
    names = file_names(strange)
    assert len({name.lower() for name in names}) == 3
    assert all("/" not in name and not name.startswith(".") for name in names)


def test_the_code_for_plain_onnx_runtime_chooses_alike(written: Path) -> None:
    code = bundle_code(read_bundle(written))
    space: dict[str, Any] = {}
    exec(code["python"], space)
    for shape, file in (((1, 24), "ids-1x24"), ((2, 9), "ids-2x9"), ((5, 5), "general")):
        feeds = ids(*shape)
        assert space["session_for"](feeds) is space["sessions"][file]
        assert np.allclose(space["session_for"](feeds).run(None, feeds)[0], expected(written.parent, feeds), atol=1e-5)
    for language in ("cpp", "csharp"):
        assert "ids [1, 24]" in code[language]
        assert "ids-2x9.onnx" in code[language]
        assert "general.onnx" in code[language]


def test_only_bundles_are_replaced(bundle: Path, tmp_path: Path) -> None:
    check_replaceable(bundle)
    check_replaceable(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    check_replaceable(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="a folder with other files"):
        check_replaceable(tmp_path)
    with pytest.raises(UserError, match="is a file"):
        check_replaceable(tmp_path / "file")
    (bundle / "general.onnx.actions.json").write_text("{}")
    check_replaceable(bundle)
    (bundle / "notes").mkdir()
    (bundle / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes/mine\.txt, which is no part of the bundle"):
        check_replaceable(bundle)
