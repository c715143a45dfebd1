"""The generator's pipeline and command, and the rules that ship."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_rewrite.generate import pipeline
from graph_rewrite.generate.cli import Generate, generate_rules
from graph_rewrite.generate.expressions import from_substitution, to_substitution
from graph_rewrite.generate.work import GenerationSettings
from graph_rewrite.rules.substitutions.rule_files import read_rules
from graph_rewrite.terms.json_form import from_json, to_json
from graph_rewrite.terms.semantics import TermType, evaluate, output_types, random_arrays
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, term
from tests.graph_rewrite.generate.small_expressions import OPS, add, concat, matmul, relu, split

SHIPPED = Path(pipeline.__file__).parents[1] / "rules" / "substitutions" / "generated.json"


def test_json_round_trip_and_refusals():
    equation = ((split(relu(concat(0, 1)), 1),), (relu(1),))
    substitution = to_substitution(equation, ("one group",))
    assert from_json(json.loads(json.dumps(to_json(substitution)))) == substitution
    assert from_substitution(substitution) == equation
    data = to_json(substitution)
    for broken in ({}, {**data, "source": 3}, {**data, "target": {"terms": [["relu", [[4, 0]], {}]], "outputs": []}}):
        with pytest.raises(ValueError, match=r"substitution|operand"):
            from_json(broken)


def test_rules_are_the_directions_in_which_an_equation_applies():
    identity = Side((term("transpose", Operand(INPUT, 0), perm=(1, 0)),), (Operand(0),))
    assert len(pipeline.directions(Substitution(identity, Side((), (Operand(INPUT, 0),))))) == 1
    associative = to_substitution(((matmul(matmul(0, 1), 2),), (matmul(0, matmul(1, 2)),)))
    assert pipeline.directions(associative) == [associative, associative.reversed]
    sums = to_substitution(((add(add(0, 1), 2),), (add(0, add(1, 2)),)))
    assert pipeline.directions(sums) == [sums]


def test_generation_does_not_depend_on_processes_and_goes_on_after_an_interruption(tmp_path):
    plan = GenerationSettings(OPS, 2, 3)
    alone = pipeline.to_text(pipeline.generate(plan, tmp_path / "alone"))
    state = tmp_path / "interrupted"

    def stop(step, done, of):
        if step != "families of operators":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline.generate(plan, state, progress=stop)
    finished = {path: path.stat().st_mtime_ns for path in state.rglob("family-*")}
    assert finished
    assert pipeline.to_text(pipeline.generate(plan, state, processes=2)) == alone
    assert {path: path.stat().st_mtime_ns for path in state.rglob("family-*")} == finished


def test_the_command_writes_rules_that_hold(tmp_path, capsys):
    out = tmp_path / "rules.json"
    assert generate_rules(Generate(out=out, ops=",".join(OPS), max_ops=2, processes=1)) == 0
    assert "equal fingerprints" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [out]
    texts = {str(rule.substitution) for rule in read_rules(out)}
    assert "matmul(matmul(x0, x1), x2) = matmul(x0, matmul(x1, x2))" in texts
    assert "transpose(transpose(x0, perm=1x0), perm=1x0) = x0" in texts


@pytest.mark.parametrize(("change", "message"), [({"ops": "ewadd,nothing"}, "nothing"), ({"max_ops": 9}, "max-ops")])
def test_wrong_arguments_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        generate_rules(replace(Generate(out=tmp_path / "rules.json"), **change))
    assert list(tmp_path.iterdir()) == []


def test_shipped_rules_hold_at_shapes_that_were_not_used_to_find_them():
    rules = json.loads(SHIPPED.read_text())
    assert rules["table"]["rules, one per direction"] == len(rules["rules"]) > 100
    rng = np.random.default_rng(11)
    tried = 0
    for rule in rules["rules"][::17]:
        substitution = from_json(rule)
        numbers = sorted({*substitution.source.inputs, *substitution.target.inputs})
        for shape in ((5, 5), (6, 5, 5), (4, 4, 7, 7)):
            types = {i: TermType(shape) for i in numbers}
            if output_types(substitution.source, types) and output_types(substitution.target, types):
                arrays = random_arrays(types, rng)
                before = evaluate(substitution.source, arrays, types, seed=2)
                after = evaluate(substitution.target, arrays, types, seed=2)
                assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)), rule["name"]
                tried += 1
    assert tried > 10
