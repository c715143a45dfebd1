"""The mutants that come with RewriteGym: they are those that were proved, they pay, and they cost a step little."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from benchmarks.env_speed import make_env, rollout
from envs import GraphRewriteEnv
from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.mutant_rules import MalformedMutantError, MutantRule, read_mutant_rules
from graph_rewrite.mutate.mutant_rules.shipped import read_shipped, shipped_mutants, write_shipped
from graph_rewrite.mutate.onnx_form import as_graph
from graph_rewrite.onnx_files.saving import save
from tests.graph_rewrite.mutate.mutant_rules.test_rule import the_rule
from tests.small_models import SMALL

STEPS = 8
MOST_CALLS = 1.1
"""Function calls of a step with the shipped mutants, at most, over those without."""


def work(rule: MutantRule) -> int:
    return work_of(rule.original, rule.shapes) + work_of(rule.mutant, rule.shapes)


def smallest() -> MutantRule:
    return min(shipped_mutants(), key=work)


def test_there_are_some_and_each_has_a_proof_and_evidence_that_it_pays() -> None:
    rules = shipped_mutants()
    assert rules
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        proof, evidence = rule.certificate["proof"], rule.certificate["evidence"]
        assert proof["error_bound"] < 1e-12
        before, after = evidence["operators_ms"]
        assert after < before
        assert evidence["saved_ms"][1] > 0.0, "the lower end of what its window saves"
        assert evidence["model_speedup"][1] > 1.0, "and of the speed-up of its model"
        before, after = evidence["multiplications"]
        assert [before, after] == [work_of(side, rule.shapes) for side in (rule.original, rule.mutant)]


def test_the_smallest_one_is_proved_again() -> None:
    rule = smallest()
    (again,) = read_mutant_rules([rule.embedded])
    assert again.digest == rule.digest


@pytest.mark.slow  # a proof takes seconds for each 10^9 multiplications
def test_all_are_proved_again() -> None:
    assert len(read_mutant_rules(rule.embedded for rule in shipped_mutants())) == len(shipped_mutants())


def run(graph: Graph, path: Path, feeds: dict[str, np.ndarray]) -> list[Any]:
    session = onnxruntime.InferenceSession(save(graph, path), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_the_smallest_one_applies_and_computes_the_same(tmp_path: Path) -> None:
    rule = smallest()
    graph = as_graph(rule.original, rule.shapes, constants=rule.constants)
    (candidate,) = Rewriter([rule], deployment=False).candidates(graph)
    rng = np.random.default_rng(0)
    feeds = {
        f"x{number}": rng.standard_normal(shape).astype(np.float32)
        for number, shape in enumerate(rule.shapes) if number not in rule.constants
    }  # fmt: skip
    before = run(graph, tmp_path / "a.onnx", feeds)
    after = run(candidate.apply(), tmp_path / "b.onnx", feeds)
    for a, b in zip(before, after, strict=True):
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


def written(path: Path) -> Path:
    write_shipped(path, [the_rule()])
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (read,) = read_shipped(written(tmp_path / "some.json"))
    assert (read.name, read.digest, read.equation) == (the_rule().name, the_rule().digest, the_rule().equation)
    assert read_shipped(tmp_path / "none.json") == ()


@pytest.mark.parametrize("part", ["program", "digest", "verdict", "name"])
def test_what_has_changed_since_its_proof_is_refused(part: str, tmp_path: Path) -> None:
    path = written(tmp_path / "some.json")
    data = json.loads(path.read_text())
    (entry,) = data["mutants"]
    if part == "program":
        entry["mutant"]["steps"][1][2]["pads"] = [1, 1, 1, 1]
        entry["name"] = MutantRule._read(entry).name
    elif part == "name":
        entry["name"] = "MutantConv00000000"
    else:
        entry["certificate"][part] = "other"
    path.write_text(json.dumps(data))
    with pytest.raises(MalformedMutantError):
        read_shipped(path)


def calls(env: GraphRewriteEnv) -> int:
    """Function calls of the first steps of an episode, the second time: what both environments share is known then."""
    for _ in islice(rollout(env, np.random.default_rng(1)), STEPS):
        pass
    count = 0

    def on_event(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    steps = islice(rollout(env, np.random.default_rng(1)), STEPS)
    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        for _ in steps:
            pass
    finally:
        sys.setprofile(before)
    return count


def uri(name: str) -> str:
    return f"zoo://{name}?" + "&".join(f"{key}={value}" for key, value in SMALL[name].items())


@pytest.mark.parametrize(
    "model", [uri("bert"), uri("resnet18"), pytest.param("zoo://bert", marks=pytest.mark.slow, id="bert-base")]
)
def test_a_step_makes_hardly_more_function_calls(model: str) -> None:
    plain, with_mutants = make_env(model), make_env(model)
    with_mutants.problem.add_rules(shipped_mutants())
    assert len(with_mutants.problem.rewriter.rules) == len(plain.problem.rewriter.rules) + len(shipped_mutants())
    calls(plain)
    assert calls(with_mutants) <= MOST_CALLS * calls(plain)
