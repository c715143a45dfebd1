"""The table of PET's rewrites that the generator finds."""

from __future__ import annotations

import json

import pytest

from benchmarks.papers.rediscoveries import WANTED, Arguments, Wanted, main, rediscovered
from graph_rewrite.errors import UserError


@pytest.mark.parametrize(
    ("name", "boxes", "share", "repair"),
    [
        ("batch-into-width", 2, 1 / 8, "gap"),
        ("38x38-to-16-of-10x10", 15, 1 - (32 / 38) ** 2, "halo"),
        ("batched-to-plain-product", 1, 0.5, "recompute"),
        ("average-pool-to-convolution", 4, 1 - 0.8**2, "map"),
        ("group-to-dense", 0, 0.0, "none"),
    ],
)
def test_a_rewrite_of_each_repair(name: str, boxes: int, share: float, repair: str) -> None:
    found = rediscovered(name)
    assert (found.boxes, found.repair) == (boxes, repair)
    assert found.share_wrong == pytest.approx(share)
    assert 1.0 < found.cost < 4.0
    assert found.error_bound < 1e-15


def test_the_table_and_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(Arguments(("stride-to-1", "batch-into-height")))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "rewrite", "stride-to-1", "batch-into-height"
    ]  # fmt: skip
    main(Arguments(("stride-to-1",), json=True))
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["boxes"], entry["repair"]) == ("stride-to-1", 0, "none")


def test_what_is_not_found_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    original = WANTED["stride-to-1"]
    impossible = Wanted(original.original, original.shapes, lambda found: False, 1.0)
    monkeypatch.setitem(WANTED, "impossible", impossible)  # type: ignore[arg-type]
    monkeypatch.setattr("benchmarks.papers.rediscoveries.Generator.sketches", lambda self: iter(()))
    with pytest.raises(LookupError, match="does not find it"):
        rediscovered("impossible")
    with pytest.raises(UserError, match="no rewrite 'unknown'"):
        main(Arguments(("unknown",)))
