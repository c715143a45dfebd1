"""The table of PET's rewrites that the generator finds."""

from __future__ import annotations

import json

import pytest

from benchmarks.papers.rediscoveries import WANTED, Arguments, Wanted, main, rediscovered
from graph_rewrite.errors import UserError


@pytest.mark.parametrize(
    ("name", "boxes", "share", "repair", "cost"),
    [
        ("batch-into-width", 2, 1 / 28, "gap", 58 / 56),
        ("batch-into-height", 2, 1 / 28, "gap", 58 / 56),
        ("dilated-to-dense", 8, 1 - (12 / 14) ** 2, "recompute", 2 - (12 / 14) ** 2),
        ("38x38-to-16-of-10x10", 15, 1 - (26 / 38) ** 2, "halo", (40 / 38) ** 2),
        ("stride-to-1", 0, 0.0, "none", 4 / 3),
        ("group-to-dense", 0, 0.0, "none", 2.0),
        ("batched-to-plain-product", 1, 0.5, "recompute", 2.5),
        ("batched-to-plain-product-of-one-matrix", 0, 0.0, "none", 1.0),
        ("average-pool-to-convolution", 4, 1 - (33 / 35) ** 2, "map", 1.0),
        ("figure-10a", 0, 0.0, "none", 6 / 5),
        ("figure-10b", 0, 0.0, "none", 1.0),
    ],
)
def test_all_rewrites_of_the_paper_are_found_and_repaired(
    name: str, boxes: int, share: float, repair: str, cost: float
) -> None:
    """The cost is at least that of the products, and layouts add some to it."""
    found = rediscovered(name)
    assert (found.boxes, found.repair) == (boxes, repair)
    assert found.share_wrong == pytest.approx(share)
    assert cost <= found.cost < 1.3 * cost
    assert found.error_bound < 1e-15


def test_every_rewrite_but_the_slow_one_has_a_test() -> None:
    [mark] = test_all_rewrites_of_the_paper_are_found_and_repaired.pytestmark  # type: ignore[attr-defined]
    assert {entry[0] for entry in mark.args[1]} == WANTED.keys() - {"stride-to-1-of-an-image"}


def test_the_table_and_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(Arguments(("figure-10b", "group-to-dense")))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "rewrite", "figure-10b", "group-to-dense"
    ]  # fmt: skip
    main(Arguments(("figure-10b",), json=True))
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["boxes"], entry["repair"]) == ("figure-10b", 0, "none")


def test_what_is_not_found_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    original = WANTED["stride-to-1"]
    impossible = Wanted(original.original, original.shapes, lambda found: False, 0.0)
    monkeypatch.setitem(WANTED, "impossible", impossible)  # type: ignore[arg-type]
    monkeypatch.setattr("benchmarks.papers.rediscoveries.mutants_of_subprogram", lambda *given, **more: iter(()))
    with pytest.raises(LookupError, match="does not find it"):
        rediscovered("impossible")
    with pytest.raises(UserError, match="no rewrite 'unknown'"):
        main(Arguments(("unknown",)))
