"""The catalogue: reasons read from code, facts on rules, pages written whole and found stale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite import Refusal, Rule
from graph_rewrite.rewriting.patterns import Const, Maybe, Scalar, Values, build_pattern
from graph_rewrite.rulebook import catalogue, cli
from graph_rewrite.rulebook.diagram import example
from graph_rewrite.rulebook.reasons import reasons
from graph_rewrite.rules import all_rules, find_rule

SOME = ("DropIdentity", "AddZero", "MergeTwoMatMuls", "FoldShiftBeforeConv", "Reassociate")
ODD = Refusal("the constant is odd")


def helper(value: int) -> Refusal | None:
    return Refusal("a helper refuses") if value else None


class Base(Rule):
    limit = 3

    def check(self, m: Any, x: Any) -> Refusal | None:
        if x.rank > self.limit:
            return Refusal(f"x has more than {self.limit} axes, namely {x.rank}")
        return self.more(x)

    def more(self, x: Any) -> Refusal | None:
        return Refusal("never read: overridden")


class Derived(Base):
    """Neg(x) = Neg(x)"""

    limit = 4

    def source(self, op: Any, x: Any) -> Any:
        return op.Neg(x)

    def check(self, m: Any, x: Any) -> Refusal | None:
        return ODD if x.is_const else super().check(m, x)

    def more(self, x: Any) -> Refusal | None:
        return helper(x.rank)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return Refusal("one" if x.rank else "other" + " thing")


class TestReasons:
    def test_they_are_found_through_helpers_bases_and_constants(self) -> None:
        assert reasons(Derived()) == (
            "the constant is odd", "x has more than 4 axes, namely …", "a helper refuses", "one", "other thing",
        )  # fmt: skip

    def test_a_rule_that_never_refuses_has_none(self) -> None:
        assert reasons(find_rule("DropIdentity")) == ()

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("AddZero", "the constant is not 0 everywhere"),
            ("MulOne", "the constant is not 1 everywhere"),
            ("MergeTwoMatMuls", "all products have constant biases, which merge as well"),
            ("FoldShiftBeforeConv", "the convolution pads its input with zeros, which the shift would change"),
        ],
    )
    def test_of_registered_rules(self, name: str, reason: str) -> None:
        assert reason in reasons(find_rule(name))


class TestFacts:
    def test_kinds_of_variables(self) -> None:
        def source(op: Any, x: Any, w: Const, v: Const, s: Scalar, b: Maybe, rest: Values) -> Any:
            return op.Sum(op.Mul(op.Conv(x, op.Mul(w, v), b), s), rest)

        text = catalogue.variable_kinds(build_pattern(source))
        assert text == "w, v: constant; s: constant of one element; b: optional; rest: any number of inputs"

    def test_where_a_rule_was_used_is_read_from_recorded_results(self) -> None:
        used = {name for name, models in catalogue.where_used().items() if "bert" in models}
        assert "StrassenFeedForward" in used
        assert used & {rule.name for rule in all_rules()}

    def test_rows_of_a_machine_count_unless_they_failed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        found = {"rewrites": [{"rule": "AddZero"}], "verified": True}
        rows = [
            {"model": "zoo://vit?layers=2", **found, "failure": ""},
            {"model": "dalle", **found},
            {"model": "bert", **found, "verified": False, "failure": "outputs differ"},
        ]
        (tmp_path / "machine").mkdir()
        (tmp_path / "machine" / "cpu-t1.json").write_text(json.dumps({"protocol": {}, "rows": rows}), "utf-8")
        monkeypatch.setattr(catalogue, "RESULTS", tmp_path)
        assert catalogue.where_used.__wrapped__() == {"AddZero": ("dalle", "vit")}

    def test_without_recorded_results_nothing_was_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalogue, "RESULTS", tmp_path)
        assert catalogue.where_used.__wrapped__() == {}

    def test_a_section_tells_all(self) -> None:
        rule = find_rule("AddZero")
        text = catalogue.section(rule)
        assert text.startswith("### AddZero\n\n`x + 0 = x`\n")
        assert "Add(x, c)  =>  x" in text
        assert "- c: constant\n" in text
        assert "- refuses: the constant is not 0 everywhere" in text
        assert "\n- certificate: " in text
        assert set(catalogue.facts(rule, example(rule))) <= {line.removeprefix("- ") for line in text.splitlines()}


class TestPages:
    def test_every_rule_has_a_section_and_every_family_its_count(self) -> None:
        rules = [find_rule(name) for name in SOME]
        (page,) = catalogue.pages(rules).values()
        assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == list(SOME)
        assert "5 rules in 4 families:" in page
        assert "| [elimination](#elimination) | 2 |" in page

    def test_headings_differ_as_anchors(self) -> None:
        names = [*{rule.family for rule in all_rules()}, *(rule.name for rule in all_rules())]
        assert len({name.lower() for name in names}) == len(names)

    def test_pages_are_written_checked_and_found_stale(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(catalogue, "all_sets", lambda: tuple(find_rule(name) for name in SOME[:2]))
        arguments = ["catalogue", "--out", str(tmp_path / "rules.md")]
        assert cli.main([*arguments, "--check"]) == 1
        assert "rules.md is not what the rules give" in capsys.readouterr().err
        assert cli.main(arguments) == 0
        assert cli.main([*arguments, "--check"]) == 0
        assert [file.name for file in tmp_path.iterdir()] == ["rules.md"]
        (tmp_path / "rules.md").write_text("changed", "utf-8")
        assert cli.main([*arguments, "--check"]) == 1

    def test_the_page_has_the_name_that_others_link_to(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["catalogue", "--out", "other.md"]) == 2
        assert "the page is called rules.md" in capsys.readouterr().err
