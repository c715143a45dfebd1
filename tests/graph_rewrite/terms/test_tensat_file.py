"""TENSAT's text: reading, writing, pairs of lines, and what is wrong with a line."""

from __future__ import annotations

import pytest

from graph_rewrite.rules.substitutions.rule_files import imported_rules
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.substitution import Substitution
from graph_rewrite.terms.tensat_file import parse_tensat, read_tensat, tensat_texts, write_tensat

SPLIT = "(split_{} (split 1 (relu (concat 1 2 ?a ?b))))"
PAIR = f"(relu ?a)=>{SPLIT.format(0)}\n(relu ?b)=>{SPLIT.format(1)}\n"


def test_the_shipped_rules_survive_writing_and_reading(tmp_path):
    bare = [Substitution(rule.substitution.source, rule.substitution.target) for rule in imported_rules()]
    files = write_tensat(bare, tmp_path / "rules.txt")
    assert [file.name for file in files] == ["rules.txt", "rules_multi.txt"]
    found = [substitution for file in files for substitution in read_tensat(file)]
    assert sorted(map(str, found)) == sorted(map(str, bare))
    assert set(found) == set(bare)


def test_two_lines_are_one_rule_with_two_outputs():
    (rule,) = parse_tensat(PAIR)
    assert len(rule.source.outputs) == 2
    assert str(rule).startswith("(relu(x0), relu(x1)) = (split(relu(concat(x0, x1, axis=1, rank=2)), axis=1).0")


def test_parts_of_one_split_are_a_pair_though_each_line_is_complete():
    split = "(split_{} (split 0 (relu (concat 0 2 ?a ?b))))"
    text = f"(relu (ewadd ?a ?b))=>{split.format(0)}\n(relu (ewmul ?a ?b))=>{split.format(1)}\n"
    assert len(parse_tensat(text)) == 1


def test_a_file_may_hold_both_kinds():
    text = "(relu (relu ?a))=>(relu ?a)\n" + PAIR + "\n(ewadd ?a ?b) => (ewadd ?b ?a)\n"
    assert [len(rule.source.outputs) for rule in parse_tensat(text)] == [1, 2, 1]


def test_a_file_of_pairs_is_read_as_such(tmp_path):
    text = "(ewadd ?a ?b)=>(ewadd ?b ?a)\n(ewmul ?a ?b)=>(ewmul ?b ?a)\n"
    (tmp_path / "converted_multi.txt").write_text(text)
    (tmp_path / "converted.txt").write_text(text)
    assert len(read_tensat(tmp_path / "converted_multi.txt")) == 1
    assert len(read_tensat(tmp_path / "converted.txt")) == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "(matmul (concat 0 ?a (matmul ?b ?a)) ?c)=>(concat 0 (matmul ?a ?c) (matmul ?b (matmul ?a ?c)))",
            "matmul(concat(x0, matmul(x1, x0), axis=0, rank=2), x2)",
        ),
        (
            "(conv2d 1 2 1 2 (concat 1 ?a ?b) ?c)=>(conv2d 1 2 1 2 (concat 1 ?a ?b) ?c)",
            "conv(concat(x0, x1, axis=1, rank=4), x2, activation=relu, padding=valid, stride=1x2)",
        ),
        (
            "(poolavg 3 3 1 1 0 ?a)=>(conv2d 1 1 0 0 ?a (Cpool 3 3))",
            "avgpool(x0, kernel=3x3, padding=same, stride=1x1)",
        ),
        ("(poolmax ?a 2 3 1 2 1 0)=>(relu ?a)", "maxpool(x0, kernel=2x3, padding=valid, stride=1x2)"),
        ("(transpose ?a 1_0 1)=>(ewmul ?a Iewmul)", "transpose(x0, perm=1x0)"),
    ],
)
def test_forms_of_operators(line, expected):
    (rule,) = parse_tensat(line)
    assert str(rule).split(" = ")[0] == expected
    single, multi = tensat_texts([rule])
    assert not multi
    assert parse_tensat(single) == [rule]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("(relu ?a) -> (relu ?a)", "no rule"),
        ("(relu ?a=>(relu ?a)", "a closing parenthesis is missing"),
        ("(relu ?a))=>(relu ?a)", "a closing parenthesis too many"),
        ("(softmax ?a)=>(relu ?a)", "unknown operator 'softmax'"),
        ("(relu a)=>(relu a)", "'a' is no expression"),
        ("(conv2d 1 1 0 ?a ?b)=>(relu ?a)", "conv2d has too few"),
        ("(matmul 7 ?a ?b)=>(relu ?a)", "unknown activation 7"),
        ("(ewadd ?a)=>(relu ?a)", "ewadd takes 2 inputs, not 1"),
        ("(split_0 ?a)=>(relu ?a)", "split_0 takes one"),
        ("(relu ?a)=>(ewadd ?a ?b)", "the second line of this pair is missing"),
    ],
)
def test_errors_name_the_line(line, reason):
    with pytest.raises(RuleFileError, match=r"^rules: line 3: .*" + reason.replace("(", r"\(")):
        parse_tensat(f"(relu (relu ?a))=>(relu ?a)\n\n{line}\n")
