"""Coverage of a file's rules by other rules, directly or in two steps."""

from __future__ import annotations

import json

import pytest

from graph_rewrite.generate.coverage import (
    both_sides,
    chosen_shapes,
    cover,
    form,
    read_rule_file,
    unshared,
)
from graph_rewrite.rulebook.cli import main
from graph_rewrite.rules import all_rules
from graph_rewrite.rules.substitutions.rule_files import imported_rules, read_rules
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.taso_file import write_taso
from graph_rewrite.terms.tensat_file import parse_tensat

LINES = {
    "(matmul (matmul ?a ?b) ?c)=>(matmul ?a (matmul ?b ?c))": ("AssociateMatMulRight",),
    "(relu (conv2d 1 1 0 0 ?x ?w))=>(conv2d 1 1 0 2 ?x ?w)": ("FuseConvRelu",),
    "(matmul (matmul (matmul ?a ?b) ?c) ?d)=>(matmul ?a (matmul ?b (matmul ?c ?d)))": ("AssociateMatMulRight",) * 2,
    "(concat 1 2 (concat 0 2 ?a ?b) (concat 0 2 ?c ?d))=>(concat 0 2 (concat 1 2 ?a ?c) (concat 1 2 ?b ?d))": None,
}
FALSE = "(matmul ?a ?b)=>(matmul ?b ?a)"


@pytest.fixture(scope="module")
def report():
    return cover([parse_tensat(line)[0] for line in (*LINES, FALSE)], all_rules(), max_dim=3)


def test_paths_are_the_shortest(report):
    for entry, expected in zip(report.entries, LINES.values(), strict=False):
        assert (None if entry.path is None else entry.path.rules) == expected, str(entry.substitution)


def test_counts(report):
    assert report.counts() == {"rules": 5, "imported": 5, "verified": 4, "refuted": 1, "in_set": 2, "implied": 1}
    (refuted,) = report.refuted
    assert refuted.derivation.counterexample is not None
    assert [entry.number for entry in report.uncovered] == [3]


def test_a_result_used_twice_is_an_expression_at_either_use():
    (twice,) = parse_tensat(
        "(ewadd (matmul ?a ?b) (matmul (matmul ?a ?b) ?c))=>(ewadd (matmul ?a ?b) (matmul ?a (matmul ?b ?c)))"
    )
    (entry,) = cover([twice], all_rules(), max_dim=2).entries
    assert entry.path is not None
    assert entry.path.rules == ("AssociateMatMulRight",)


def test_operators_are_copied_for_each_use():
    (rule,) = parse_tensat("(ewadd (relu (tanh ?a)) (ewmul (relu (tanh ?a)) (tanh ?a)))=>(relu ?a)")
    source, _ = both_sides(rule, chosen_shapes(rule)[0], frozenset())
    copies = unshared(source)
    assert form(copies) == form(source)
    assert sorted(node.op for node in copies.order()) == ["Add", "Mul", "Relu", "Relu", "Tanh", "Tanh", "Tanh"]
    assert all(len(copies.consumers.get(value, ())) <= 1 for node in copies.order() for value in node.outputs)


def test_weights_may_have_to_be_constant():
    merged = cover([imported_rules()[73].substitution], all_rules(), max_dim=2)
    assert str(merged.entries[0].path) == "SumOfMatMuls (constant weights)"


def test_a_rule_covers_itself_but_not_its_reverse():
    grid = parse_tensat(list(LINES)[3])[0]
    rule = SubstitutionRule(grid, "Grid", "taso", "taso")
    forth, back = cover([grid, parse_tensat("(relu ?a)=>(tanh ?a)")[0]], [rule], max_dim=2).entries
    assert forth.path is not None
    assert forth.path.rules == ("Grid",)
    assert back.path is None


def test_the_form_sees_neither_order_nor_sharing_but_all_else():
    def sides(line: str) -> tuple[str, str]:
        rule = parse_tensat(line)[0]
        shapes = chosen_shapes(rule)[0]
        before, after = both_sides(rule, shapes, frozenset())
        return form(before), form(after)

    first, second = sides("(ewadd ?a (ewmul ?b ?c))=>(ewadd (ewmul ?c ?b) ?a)")
    assert first == second
    for line in (
        "(ewadd ?a (ewmul ?b ?c))=>(ewadd ?b (ewmul ?a ?c))",
        "(concat 0 2 ?a ?b)=>(concat 0 2 ?b ?a)",
        "(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 2 ?x ?w)",
        "(ewadd ?a ?b)=>(ewmul ?a ?b)",
    ):
        first, second = sides(line)
        assert first != second, line


def test_both_formats_give_the_same_counts(tmp_path, capsys):
    lines = list(LINES)[:2]
    (tmp_path / "rules.txt").write_text("\n".join(lines))
    write_taso([parse_tensat(line)[0] for line in lines], tmp_path / "rules.pb")
    for file in ("rules.txt", "rules.pb"):
        assert main(["coverage", str(tmp_path / file), "--json", "--rules", "default"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "rules": 2, "imported": 2, "verified": 2, "refuted": 0, "in_set": 2, "implied": 0,
        }  # fmt: skip


def test_import_refuses_what_is_false(tmp_path, capsys):
    (tmp_path / "rules.txt").write_text("\n".join((next(iter(LINES)), FALSE)))
    assert main(["import", str(tmp_path / "rules.txt"), "--out", str(tmp_path / "out.json"), "--prefix", "Mine"]) == 0
    (rule,) = read_rules(tmp_path / "out.json")
    assert (rule.name, rule.origin) == ("Mine000", "mine")
    assert "Mine001" in capsys.readouterr().out
    refused = json.loads((tmp_path / "out.json").read_text())["refused"]
    assert "output 0" in refused[0]["reason"]


def test_files_of_neither_format_are_refused(tmp_path, capsys):
    (tmp_path / "rules.txt").write_text("nothing")
    with pytest.raises(RuleFileError, match=r"rules\.txt: not a protobuf"):
        read_rule_file(tmp_path / "rules.txt")
    assert main(["coverage", str(tmp_path / "rules.txt")]) == 2
    assert "rules.txt" in capsys.readouterr().err
