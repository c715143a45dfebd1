"""The command `rules verify`."""

import json
import textwrap
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graph_rewrite import Rule
from graph_rewrite.rulebook.cli import main
from graph_rewrite.rules import certification as certificate
from graph_rewrite.rules import registered_rules
from graph_rewrite.rules.certification import load
from graph_rewrite.soundness.instances.enumeration import instances
from graph_rewrite.soundness.verification.outcome import RuleOutcome
from graph_rewrite.soundness.verification.report import print_outcomes


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


def test_a_long_verification_tells_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph_rewrite.soundness.verification.cli.EVERY_S", 0.0)
    main(["verify", "--fast", "--rule", "DropIdentity", "--rule", "DropTranspose", "--jobs", "1"])
    assert "1/2 rules, the last was DropIdentity" in capsys.readouterr().err
