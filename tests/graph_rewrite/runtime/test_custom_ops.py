"""Libraries of custom operators: what is refused, and that no file can name one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.custom_domains import custom_operators, require_operators
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.runtime import Deployment
from graph_rewrite.runtime.custom_ops import CustomOperator, library_paths, missing_operators
from tests.graph_rewrite import custom_ops, sample_models

ELSEWHERE = CustomOperator("ai.onnx.contrib", "NoSuchOperator", 1, 1, 1)


class TestLibraries:
    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"--custom-ops .*lib\.so: there is no such file"):
            library_paths([tmp_path / "lib.so"])
        with pytest.raises(UserError, match="there is no such file"):
            library_paths([tmp_path])

    def test_each_is_kept_once_under_its_own_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "lib.so.1").touch()
        (tmp_path / "lib.so").symlink_to("lib.so.1")
        monkeypatch.chdir(tmp_path)
        assert library_paths(["lib.so", tmp_path / "lib.so"]) == (str(tmp_path / "lib.so"),)

    def test_files_that_are_no_library_of_operators(self, tmp_path: Path) -> None:
        text, other = tmp_path / "lib.so", Path(np._core._multiarray_umath.__file__)  # type: ignore[attr-defined]
        text.write_text("no library")
        for path in (text, other):
            with pytest.raises(UserError, match="no library of operators that ONNX Runtime can load") as refusal:
                missing_operators((str(path),), ())
            assert str(path) in str(refusal.value)

    def test_operators_that_they_hold(self) -> None:
        held = CustomOperator("ai.onnx.contrib", "Inverse", 1, 1, 1)
        assert missing_operators((custom_ops.library(),), [held, ELSEWHERE]) == [ELSEWHERE]
        assert missing_operators((), [held, ELSEWHERE]) == [held, ELSEWHERE]
        assert missing_operators((), ()) == []


class TestModels:
    def test_operators_within_subgraphs_count_and_functions_do_not(self) -> None:
        found = custom_operators(load(sample_models.custom()))
        assert [(each.domain, each.op, each.inputs, each.outputs) for each in found] == [("custom", "Thing", 1, 2)]
        inside = sample_models.parsed("""(bool c, float[2] x) => (float[2] y) { y = If(c) <
            then_branch = p () => (float[2] u) { u = custom.Inner(x) },
            else_branch = q () => (float[2] v) { v = Neg(x) }> }""")
        assert [str(each) for each in custom_operators(load(inside))] == ["custom::Inner"]
        functions = [make() for make in sample_models.RUNNABLE if make().functions]
        assert functions
        assert not any(custom_operators(load(model)) for model in functions)

    def test_types_behind_the_operator_are_those_that_the_file_declares(self) -> None:
        model = custom_ops.model()
        declared = normalise(load(model))[0]
        assert declared.is_typed()
        del model.graph.value_info[:]
        graph, report = normalise(load(model))
        assert not graph.is_typed()
        assert "results of unknown shape: of ai.onnx.contrib::Inverse" in str(report)

    def test_without_a_library_the_message_says_how_to_name_one(self) -> None:
        with pytest.raises(UserError, match=r"custom domain: custom::Thing; give the library .*--custom-ops LIBRARY"):
            require_operators(load(sample_models.custom()))

    def test_a_library_without_the_operator(self) -> None:
        library = custom_ops.library()
        with pytest.raises(UserError, match=r"do not hold: custom::Thing") as refusal:
            require_operators(load(sample_models.custom()), (library,))
        assert library in str(refusal.value)
        require_operators(load(custom_ops.model()), (library,))


class TestDeployments:
    def test_only_requests_to_other_processes_name_libraries(self, tmp_path: Path) -> None:
        library = tmp_path / "lib.so"
        library.write_text("code")
        deployment = Deployment(threads=2, custom_ops=(str(library),)).with_disabled(["GeluFusionL2"])
        assert "custom_ops" not in deployment.to_json()
        assert Deployment.from_request(json.loads(json.dumps(deployment.to_request()))) == deployment
        assert deployment.plain().custom_ops == deployment.unoptimised().custom_ops == deployment.custom_ops
        with pytest.raises(ValueError, match=r"custom_ops.*unknown"):
            Deployment.from_json(deployment.to_request())

    def test_latencies_with_other_code_are_others(self, tmp_path: Path) -> None:
        library = tmp_path / "lib.so"
        keys = [Deployment().key]
        for text in ("one", "other"):
            library.write_text(text)
            keys.append(Deployment(custom_ops=(str(library),)).key)
        assert len(set(keys)) == 3
        copy = tmp_path / "copy.so"
        copy.write_text("other")
        assert Deployment(custom_ops=(str(copy),)).key == keys[-1]
