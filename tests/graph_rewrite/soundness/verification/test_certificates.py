"""Certificates: their files, the rules that the registry refuses, and the digests of rules."""

import json
import os
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rewriting import digests
from graph_rewrite.rules import RULE_SETS, registered_rules
from graph_rewrite.rules import certification as certificate
from graph_rewrite.rules.certification import UncertifiedRuleError, holds, load, require, write
from graph_rewrite.rules.substitutions.rule_files import shipped_rules
from graph_rewrite.soundness.verification.resolution import resolve
from tests.graph_rewrite.soundness.verification.certified import AbsTwice, certified

RULES = (*registered_rules(), *(rule for name in RULE_SETS[1:] for rule in shipped_rules(name)))


class TestFiles:
    def test_a_certificate_survives_its_file(self, folder: Path) -> None:
        rule = AbsTwice()
        made = certified(rule)
        write([made], registered_rules())
        assert load("AbsTwice") == made
        assert holds(rule)
        assert made.rule == "AbsTwice"
        assert made.instances == made.methods["floating-point"] == 2

    def test_deriving_it_again_gives_the_same_bytes(self, folder: Path) -> None:
        write([certified(AbsTwice())], registered_rules())
        first = {file.name: file.read_bytes() for file in folder.iterdir()}
        write([certified(AbsTwice())], registered_rules())
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == first
        assert set(first) == {"AbsTwice.json", "index.json"}

    def test_rules_of_a_set_share_a_file(self, folder: Path) -> None:
        made = [replace(certified(AbsTwice()), rule=name, origin="taso") for name in ("B", "A")]
        write(made, registered_rules())
        assert load("A", "taso") == made[1]
        write([replace(made[0], rule="C")], registered_rules(), retire=[("B", "taso")])
        assert certificate.certified("taso") == {"A", "C"}
        assert set(json.loads((folder / "index.json").read_text())["rules"]) == {"A", "C"}
        assert {file.name for file in folder.iterdir()} == {"taso.json", "index.json"}

    def test_an_index_of_another_time_is_made_anew(self, folder: Path) -> None:
        made = certified(AbsTwice())
        write([made], registered_rules())
        older = (folder / "index.json").read_bytes()
        write([replace(made, rule="Other", origin="taso")], registered_rules())
        newer = (folder / "index.json").read_bytes()
        (folder / "index.json").write_bytes(older)
        write([], registered_rules())
        assert (folder / "index.json").read_bytes() == newer != older

    def test_a_retired_rule_has_no_file(self, folder: Path) -> None:
        write([certified(AbsTwice())], registered_rules())
        write([], registered_rules(), retire=[("AbsTwice", "hand")])
        assert [file.name for file in folder.iterdir()] == ["index.json"]

    def test_a_failure_leaves_what_was_there(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write([certified(AbsTwice())], registered_rules())
        before = {file.name: file.read_bytes() for file in folder.iterdir()}

        def broken(*paths: Any) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="no space left"):
            write([certified(AbsTwice(), seed=1)], registered_rules())
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before

    @pytest.mark.parametrize(("text", "message"), [
        ("{", "is damaged"),
        ('{"format": 1, "rule": "AbsTwice"}', "fields .* missing"),
        ('{"format": 99, "rule": "AbsTwice"}', "format 99"),
    ])  # fmt: skip
    def test_a_damaged_file_is_named(self, folder: Path, text: str, message: str) -> None:
        (folder / "AbsTwice.json").write_text(text)
        with pytest.raises(ValueError, match=rf"AbsTwice.json.*{message}"):
            load("AbsTwice")


class TestRegistry:
    def test_a_rule_without_certificate_is_refused(self, folder: Path) -> None:
        with pytest.raises(UncertifiedRuleError, match=r"AbsTwice has no certificate: .*verify --rule AbsTwice"):
            require([AbsTwice()])

    def test_a_changed_rule_is_refused(self, folder: Path) -> None:
        write([certified(AbsTwice(), digest="of other code")], registered_rules())
        assert not holds(AbsTwice())
        with pytest.raises(UncertifiedRuleError, match="AbsTwice has changed since it was certified"):
            require([AbsTwice()])

    def test_a_changed_rule_is_refused_although_another_was_certified_since(self, folder: Path) -> None:
        rules = registered_rules()[:2]
        write([certified(rules[0], digest="of other code"), certified(rules[1])], registered_rules())
        with pytest.raises(UncertifiedRuleError, match=f"{rules[0].name} has changed"):
            require(rules)

    def test_a_certified_rule_passes(self, folder: Path) -> None:
        write([certified(AbsTwice())], registered_rules())
        require([AbsTwice()])

    def test_a_rewriter_takes_rules_of_the_users_own(self, folder: Path) -> None:
        assert Rewriter([AbsTwice()]).rules[0].name == "AbsTwice"

    def test_the_package_is_not_read_rule_by_rule_while_its_code_is_the_same(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        digest_of_rules = {rule.name: rule.digest for rule in registered_rules()}
        modules = digests.modules_read()
        code = digests.modules_digest(modules)
        index = {"format": certificate.FORMAT, "modules": modules, "code": code, "rules": digest_of_rules}
        (folder / "index.json").write_text(json.dumps(index))
        monkeypatch.setattr(digests, "code_digest", lambda *args: pytest.fail("a digest was computed"))
        require(registered_rules())


class TestDigest:
    CODE = """
        from graph_rewrite.rewriting.rule import Rule

        def first():
            return second()

        def second():
            return {helper}

        def unused():
            return {unused}

        class Mine(Rule):
            '''Neg(Neg(x)) = x'''
            def check(self, m, x):
                first()
    """

    def test_it_covers_helpers_that_the_class_names_and_no_others(self, tmp_path: Path) -> None:
        first = self.digest_of(tmp_path / "a.py", helper="1", unused="1")
        assert self.digest_of(tmp_path / "b.py", helper="1", unused="2") == first
        assert self.digest_of(tmp_path / "c.py", helper="2", unused="1") != first

    def digest_of(self, file: Path, **values: str) -> str:
        file.write_text(textwrap.dedent(self.CODE).format(**values))
        return resolve(f"{file}:Mine").digest

    def test_a_rule_and_its_twin_differ(self) -> None:
        assert len({rule.digest for rule in RULES}) == len(RULES)

    def test_a_class_inside_a_function_has_one(self) -> None:
        class Local(AbsTwice):
            """Abs(Abs(x)) = Abs(x)"""

        assert Local().digest != AbsTwice().digest
