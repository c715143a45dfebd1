"""The file format of recorded actions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite.errors import UserError
from graph_rewrite.replay import Recording, read_recording, record
from tests.graph_rewrite.replay.models import network, rewriter
from tests.graph_rewrite.replay.test_replay import walked


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    graph, rules = network(tmp_path), rewriter()
    return record(graph, rules, walked(graph, rules, 5)[1], shapes={"x": (2, 4)}, deployment={"threads": 2})


class TestFile:
    def test_round_trip(self, recording: Recording, tmp_path: Path) -> None:
        path = recording.write(tmp_path / "actions.json")
        assert read_recording(path) == recording
        assert recording.shapes == {"x": (2, 4)}
        assert recording.version

    def test_embedded_in_a_result(self, recording: Recording, tmp_path: Path) -> None:
        path = tmp_path / "result.json"
        path.write_text(json.dumps({"speedup": 1.2, "actions": recording.to_json(), "rewrites": []}))
        assert read_recording(path) == recording

    def test_no_weights_and_no_ids(self, recording: Recording) -> None:
        site = next(step for step in recording.steps if step.at).at[0]
        assert site.where
        assert all(site.nodes)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "not JSON"),
            ("[1, 2]", "no recorded actions"),
            ("{}", "neither"),
            ('{"format": "rewritegym.actions", "format_version": 99}', "update RewriteGym"),
            ('{"format": "rewritegym.actions", "format_version": 1}', "wrong kind"),
            ('{"format": "rewritegym.actions", "format_version": 1, "steps": [3]}', "a step must be an object"),
            ('{"rewrites": [{"rule": "A", "sites": "many"}]}', "rule A has an entry of the wrong kind"),
            ('{"rewrites": [{"rule": "A", "at": [{"where": 1}]}]}', "of a site must be"),
            ("[" * 100_000, "not JSON"),
        ],
    )
    def test_what_is_no_recording(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            read_recording(path)
        assert "bad.json" in str(caught.value)

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"gone\.json: cannot be read"):
            read_recording(tmp_path / "gone.json")

    @pytest.mark.parametrize("name", ["rules", "granularity", "opset", "domains", "shapes", "deployment"])
    def test_entries_of_the_wrong_kind(self, recording: Recording, name: str) -> None:
        values: dict[str, Any] = recording.to_json() | {name: 1.5}
        with pytest.raises(UserError, match="wrong kind"):
            Recording.from_json(values)


def test_a_model_in_place_of_a_recording_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\xbf\x01\xff")
    with pytest.raises(UserError, match=r"model\.onnx: not JSON but a binary file$"):
        read_recording(path)
