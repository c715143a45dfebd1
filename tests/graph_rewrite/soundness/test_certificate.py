"""Certificates: files, digests, what the registry refuses, and every registered rule against its own."""

import json
import os
import random
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graph_rewrite import Refusal, Rewriter, Rule
from graph_rewrite.rewriting import digests
from graph_rewrite.rulebook.cli import main
from graph_rewrite.rules import RULE_SETS, registered_rules
from graph_rewrite.rules import certification as certificate
from graph_rewrite.rules.certification import Certificate, UncertifiedRuleError, holds, load, require, write
from graph_rewrite.rules.substitutions.rule_files import shipped_rules
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.soundness.instances.enumeration import instances
from graph_rewrite.soundness.verification.outcome import RuleOutcome
from graph_rewrite.soundness.verification.refutation import Refutation
from graph_rewrite.soundness.verification.report import print_outcomes
from graph_rewrite.soundness.verification.resolution import resolve
from graph_rewrite.soundness.verification.verifier import decade, verify

RULES = (*registered_rules(), *(rule for name in RULE_SETS[1:] for rule in shipped_rules(name)))


class AbsTwice(Rule):
    """Abs(Abs(x)) = Abs(x)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Abs(op.Abs(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Abs(x)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(certificate, "FOLDER", tmp_path)
    certificate._index.cache_clear()
    yield tmp_path
    certificate._index.cache_clear()


def certified(rule: Rule, **changes: Any) -> Certificate:
    found = verify(rule, fast=False, limit=2)
    assert isinstance(found, Certificate), found
    return replace(found, **changes)


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


@pytest.mark.parametrize(("error", "text"), [(0.0, "0"), (3e-7, "1e-06"), (1e-7, "1e-07"), (2.0, "1e+01")])
def test_decades(error: float, text: str) -> None:
    assert decade(error) == text


class TestCommand:
    SOURCE = """
        from graph_rewrite import Rule

        class Right(Rule):
            '''Abs(Neg(x)) = Abs(x)'''
            def source(self, op, x):
                return op.Abs(op.Neg(x))
            def target(self, op, m, x):
                return op.Abs(x)

        class Wrong(Rule):
            '''Neg(Abs(x)) = Abs(x)'''
            def source(self, op, x):
                return op.Neg(op.Abs(x))
            def target(self, op, m, x):
                return op.Abs(x)
    """

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "own_rules.py"
        path.write_text(textwrap.dedent(self.SOURCE))
        return path

    def test_a_rule_of_ones_own(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", "--fast", "--jobs", "1", "--rule", f"{file}:Right"]) == 0
        assert "hand: 1 rules, 1 proved, 0 tested, 0 refused; 0 not as" in capsys.readouterr().out

    def test_a_wrong_one_prints_the_counterexample(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["verify", "--fast", "--jobs", "1", "--json", "--rule", f"{file}:Wrong"]) == 1
        (entry,) = json.loads(capsys.readouterr().out)
        assert not entry["ok"]
        for part in ("Wrong: refuted by", "Neg(Abs(x)) = Abs(x)", "Neg(", " before"):
            assert part in entry["problem"]

    @pytest.mark.parametrize(("arguments", "message"), [
        (["--rule", "NoSuchRule"], "there is no rule 'NoSuchRule'"),
        (["--rule", "{file}:NoSuchClass"], "defines no rule of this name"),
        (["--rule", "nowhere.py:Rule"], "no such file"),
        (["--set", "mine"], "there is no rule set 'mine'"),
        (["--fast", "--write"], "leave out --fast"),
    ])  # fmt: skip
    def test_wrong_arguments(
        self, file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
    ) -> None:
        assert main(["verify", *(argument.format(file=file) for argument in arguments)]) == 2
        assert message in capsys.readouterr().err

    def test_writing(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        rule = registered_rules()[0]
        monkeypatch.setattr("graph_rewrite.soundness.verification.verifier.instances", few_instances)
        assert main(["verify", "--jobs", "1", "--rule", rule.name]) == 1
        assert "has no certificate" in " ".join(capsys.readouterr().out.split())
        assert main(["verify", "--jobs", "1", "--rule", rule.name, "--write"]) == 0
        assert main(["verify", "--jobs", "1", "--rule", rule.name]) == 0
        path = certificate.file_of(rule.name)
        path.write_text(path.read_text().replace('"instances": 3', '"instances": 4'))
        assert main(["verify", "--jobs", "1", "--rule", rule.name]) == 1
        assert "the certificate differs in instances" in " ".join(capsys.readouterr().out.split())


def few_instances(rule: Rule, **options: Any) -> Any:
    return islice(instances(rule, **options), 3)


def test_a_rule_without_instances_is_refused() -> None:
    class Never(AbsTwice):
        """Abs(Abs(x)) = Abs(x), never"""

        def check(self, m: Any, x: Any) -> Any:
            return Refusal("never")

    found = verify(Never(), fast=True)
    assert isinstance(found, Refutation)
    assert "no instance at which it applies" in str(found)


def test_a_rule_that_is_data_is_evaluated_at_all_small_shapes() -> None:
    merge = next(rule for rule in shipped_rules("taso") if rule.name == "Taso125")
    assert merge.substitution.conditions == ("one group",)
    found = verify(merge, fast=False, limit=1)
    assert isinstance(found, Certificate)
    assert found.methods["prime-field, small shapes"] > 1000
    wide = replace(merge.substitution, conditions=())
    refuted = verify(SubstitutionRule(wide, "Wide", "mine", "generated"), fast=False, limit=1)
    assert isinstance(refuted, Refutation)
    assert "x0: [1, 2, 1, 1], x1: [2, 1, 1, 1]" in str(refuted)


class TestShipped:
    def test_index_and_files_agree(self) -> None:
        known = json.loads((certificate.FOLDER / "index.json").read_text())["rules"]
        origins = {rule.name: rule.origin for rule in RULES}
        assert set(known) == set(origins)
        for name, digest in known.items():
            held = load(name, origins[name])
            assert held is not None
            assert held.digest == digest
            assert held.seed == 0

    def test_no_certificate_is_left_over(self) -> None:
        for origin in ("hand", *RULE_SETS[1:]):
            assert certificate.certified(origin) == {rule.name for rule in RULES if rule.origin == origin}

    @pytest.mark.parametrize("rule", registered_rules(), ids=lambda rule: rule.name)
    def test_a_certificate_holds(self, rule: Rule) -> None:
        recheck(rule)

    @pytest.mark.parametrize("name", RULE_SETS[1:])
    def test_certificates_of_a_set_hold(self, name: str) -> None:
        rules = shipped_rules(name)
        assert all(holds(rule) for rule in rules)
        for rule in random.Random(0).sample(rules, min(40, len(rules))):
            recheck(rule)


def recheck(rule: Rule) -> None:
    """The digest, and one of the instances of the full verification."""
    assert holds(rule)
    held, found = load(rule.name, rule.origin), verify(rule, fast=False, limit=1)
    assert isinstance(found, Certificate), str(found)
    assert held is not None
    assert held.verdict == "tested" or found.verdict == "proved", found.reason


def test_of_many_rules_those_are_listed_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    held = load("DropIdentity", "hand")
    fine = [RuleOutcome(f"Rule{number}", "hand", held, "") for number in range(70)]
    other = RuleOutcome("Odd", "taso", held, "Odd: the certificate differs in seed")
    print_outcomes(Console(width=100), [*fine, other], written=False)
    shown = capsys.readouterr().out
    assert "Rule12" not in shown
    assert "Odd" in shown
    assert "differs in seed" in shown
    assert "hand: 70 rules, 70 proved, 0 tested, 0 refused; 0 not as" in shown
    assert "taso: 1 rules, 1 proved, 0 tested, 0 refused; 1 not as" in shown
