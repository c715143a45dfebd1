"""TASO's protobuf: reading, writing, and what is wrong with a file."""

from __future__ import annotations

import struct

import pytest

from graph_rewrite.rules.substitutions.rule_files import imported_rules
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, Term, term
from graph_rewrite.terms.taso_file import parse_taso, read_taso, taso_bytes, write_taso

X, Y, Z = (Operand(INPUT, i) for i in range(3))


def one(*terms: Term) -> Side:
    return Side(terms, (Operand(len(terms) - 1),))


PLAIN = Substitution(
    one(term("matmul", X, Y, activation="none"), term("matmul", Operand(0), Z, activation="none")),
    one(term("matmul", Y, Z, activation="none"), term("matmul", X, Operand(0), activation="none")),
)
EVERYTHING = Substitution(
    one(
        term("transpose", X, perm=(0, 2, 3, 1)), term("transpose", Operand(0), perm=(0, 3, 1, 2)),
        term("enlarge", Y, kernel=(3, 5)),
        term("conv", Operand(1), Operand(2), activation="relu", padding="valid", stride=(2, 1)),
        term("maxpool", Operand(3), kernel=(2, 3), padding="same", stride=(1, 2)),
        term("avgpool", Operand(4), kernel=(3, 3), padding="same", stride=(1, 1)), term("smul", Operand(5), Z),
        term("iewmul"), term("ewmul", Operand(6), Operand(7)), term("sigmoid", Operand(8)),
    ),
    one(
        term("iconv", kernel=(3, 3)), term("conv", X, Operand(0), activation="tanh", padding="same", stride=(1, 1)),
        term("tanh", Operand(1)), term("cpool", kernel=(3, 3)),
        term("conv", Operand(2), Operand(3), activation="none", padding="same", stride=(1, 1)),
    ),
)  # fmt: skip


def test_the_shipped_rules_survive_writing_and_reading(tmp_path):
    rules = [rule.substitution for rule in imported_rules()]
    bare = [Substitution(rule.source, rule.target) for rule in rules]
    write_taso(rules, tmp_path / "rules.pb")
    assert len(bare) == 133
    assert read_taso(tmp_path / "rules.pb") == bare


def test_every_operator_and_parameter_survives():
    assert parse_taso(taso_bytes([PLAIN, EVERYTHING])) == [PLAIN, EVERYTHING]


def test_operand_ids_are_signed_varints():
    # -1 as a 64-bit varint: ten bytes.
    assert b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" in taso_bytes([PLAIN])


def test_operators_may_come_in_any_order():
    # ewadd(relu(x), y), its operators listed outermost first.
    def field(number: int, payload: bytes) -> bytes:
        return struct.pack("BB", number << 3 | 2, len(payload)) + payload

    def tensor(node: int) -> bytes:
        return field(2, b"\x08" + (node & 0xFF).to_bytes(1, "little") + b"\x10\x00")

    minus_one, minus_two = b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01"
    add = b"\x08\x10" + tensor(1) + field(2, b"\x08" + minus_two + b"\x10\x00")
    relu = b"\x08\x08" + field(2, b"\x08" + minus_one + b"\x10\x00")
    mapped = bytes([8, 0, 16, 0, 24, 0, 32, 0])
    rule = field(1, add) + field(1, relu) + field(2, add) + field(2, relu) + field(3, mapped)
    (found,) = parse_taso(field(1, rule))
    assert found.source == one(term("relu", X), term("ewadd", Operand(0), Y))


@pytest.mark.parametrize("data", [b"", b"not a protobuf", b"\x0a\x05hello"])
def test_other_bytes_are_refused(data):
    with pytest.raises(RuleFileError, match=r"some\.pb"):
        parse_taso(data, "some.pb")


def test_an_unknown_operator_is_named_with_its_rule():
    data = taso_bytes([PLAIN, Substitution(one(term("relu", X)), one(term("relu", X)))])
    with pytest.raises(RuleFileError, match="rule 1: operator 0 of the source: unknown operator type 99"):
        parse_taso(data.replace(b"\x08\x08\x12", b"\x08\x63\x12", 1))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RuleFileError, match=r"none\.pb: cannot be read"):
        read_taso(tmp_path / "none.pb")


def test_what_the_format_lacks_is_refused():
    reshape = Substitution(one(term("reshape", X, shape=(0, -1))), one(term("relu", X)))
    with pytest.raises(RuleFileError, match="has no reshape"):
        taso_bytes([reshape])
