"""Models of effects: their features, what they learn, and how they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.config import EncoderConfig
from agents.effects.believed import believed_shares
from agents.effects.model import EffectPredictor
from agents.effects.plain import WIDTH, plain_steps
from agents.effects.samples import StateSample, effect, samples_of, share_after, state_of
from agents.effects.stored import BEST, DESCRIPTION, OWN, WEIGHTS, PlainPredictor, StoredEffects
from agents.effects.training import EffectTraining, train
from envs.feature_sets import CONTEXT
from envs.features import HEAD, NODE_FEATURES
from envs.window import WindowTable
from graph_rewrite.errors import UserError

QUICK = EffectTraining(members=1, epochs=25, learning_rate=5e-3)
SMALL = EncoderConfig(hidden=16, layers=1, attention_heads=2)


def planted(samples: list[StateSample], saved: Callable[[int], float]) -> list[StateSample]:
    """The same states, where a step saves what its rule says."""
    found = []
    for sample in samples:
        rules = sample.observation["candidate_rule"][: len(sample.effects)]
        effects = np.array([saved(int(rule)) for rule in rules])
        found.append(replace(sample, effects=effects, best=effects + 0.1, errors=np.full(len(effects), 0.01)))
    return found


def by_number(rule: int) -> float:
    """An effect that alternates from rule to rule."""
    return 0.3 if rule % 2 else -0.2


@given(st.floats(-1.9, 0.9), st.floats(-1.9, 0.9))
def test_effects_and_shares_are_each_others_inverse(before: float, after: float) -> None:
    assert float(share_after(before, effect(before, after))) == pytest.approx(after, abs=1e-9)


def test_samples_are_the_steps_of_the_table(table: WindowTable) -> None:
    arrays, seen = table.arrays, 0
    for sample in samples_of(table):
        part = slice(sample.first_step, sample.first_step + len(sample.effects))
        failed = arrays["step_failed"][part]
        assert np.array_equal(np.isnan(sample.effects), failed)
        told = share_after(sample.share, sample.effects)[~failed]
        assert told == pytest.approx(np.clip(arrays["step_share"][part][~failed], -2.0, 0.95), abs=1e-5)
        seen += len(sample.effects)
    assert seen == table.steps


def test_plain_features_count_what_a_step_removes_and_inserts(samples: list[StateSample]) -> None:
    for sample in samples[:20]:
        observation = sample.observation
        nodes, edges, steps = observation["sizes"]
        found = plain_steps(observation, sample.depth, sample.guesses)
        assert found.numbers.shape == (steps, WIDTH)
        assert np.isfinite(found.numbers).all()
        for step in range(steps):
            own = [n for n in range(nodes) if observation["node_candidate"][n] == step + 1]
            (head,) = (n for n in own if observation["node_features"][n, HEAD])
            ends = observation["edge_index"][:, :edges].T.tolist()
            removed = sorted({a for a, b in ends if b == head and observation["node_candidate"][a] == 0})
            inserted = [n for n in own if n != head]
            assert found.operators[2 * step].tolist() == observation["node_op"][removed].tolist()
            assert found.operators[2 * step + 1].tolist() == observation["node_op"][inserted].tolist()
            begin = len(observation["candidate_features"][0]) + 2
            assert found.numbers[step, begin] == pytest.approx(np.log2(1 + len(removed)) / 8)
            assert found.numbers[step, -2:] == pytest.approx([sample.guesses[step], sample.depth / 3.0])
            if removed:
                mean = observation["node_features"][removed].mean(axis=0)
                assert found.numbers[step, begin + 1 : begin + 1 + len(NODE_FEATURES)] == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize(
    "settings", [QUICK, replace(QUICK, kind="graph", epochs=30, encoder=SMALL)], ids=["plain", "graph"]
)
def test_what_was_planted_is_learnt(samples: list[StateSample], settings: EffectTraining) -> None:
    known = planted(samples, by_number)
    told = np.concatenate([sample.effects for sample in known])
    means, deviations = train(known, settings).predict(known)
    assert np.corrcoef(means, told)[0, 1] > 0.9
    assert np.mean(abs(means - told) <= 1.6449 * deviations) > 0.7
    assert deviations.max() < 1.0
    both, _ = train(known, settings).predict_both(known)
    assert np.array_equal(both[:, OWN], means)
    assert np.corrcoef(both[:, BEST], told)[0, 1] > 0.9
    assert both[:, BEST].mean() - both[:, OWN].mean() == pytest.approx(0.1, abs=0.03)


def test_what_leads_to_most_is_a_label_of_its_own(table: WindowTable, samples: list[StateSample]) -> None:
    """A step leads to at least what it saves itself, by precise timings; one that cannot be run leads to a loss."""
    arrays, further = table.arrays, 0
    for sample in samples:
        part = slice(sample.first_step, sample.first_step + len(sample.effects))
        failed, after = arrays["step_failed"][part], arrays["step_next"][part]
        assert (sample.best[failed] < -0.2).all()
        own = believed_shares(table)[after]
        leads = share_after(believed_shares(table)[state_of(table, sample)], sample.best)
        known = ~failed & np.isfinite(sample.best)
        assert (leads[known] >= own[known] - 1e-9).all()
        further += int((leads[known] > own[known] + 0.01).sum())
    assert further > 3


def test_the_perceptron_says_the_same_without_pytorch(samples: list[StateSample], tmp_path: Path) -> None:
    model = train(samples[:30], replace(QUICK, epochs=2, members=2))
    model.save(tmp_path)
    for one, other in zip(
        EffectPredictor.load(tmp_path).predict_both(samples), PlainPredictor.load(tmp_path).predict_both(samples),
        strict=True,
    ):  # fmt: skip
        assert one.shape == (sum(len(sample.effects) for sample in samples), 2)
        assert other == pytest.approx(one, abs=1e-4)


def test_a_model_of_another_kind_needs_pytorch(samples: list[StateSample], tmp_path: Path) -> None:
    train(samples[:4], replace(QUICK, kind="graph", epochs=1, encoder=SMALL)).save(tmp_path)
    with pytest.raises(UserError, match="kind graph needs PyTorch"):
        PlainPredictor.load(tmp_path)


def test_training_is_reproducible_and_failures_are_passed_over(samples: list[StateSample]) -> None:
    known = planted(samples[:20], by_number)
    nothing = np.full(len(known[0].effects), np.nan)
    known[0] = replace(known[0], effects=nothing, best=nothing)
    quick = replace(QUICK, epochs=2, members=2)
    one, other = (train(known, quick).predict(known) for _ in range(2))
    assert np.array_equal(one, other)
    assert np.isfinite(one).all()
    assert not np.array_equal(one[0], train(known, replace(quick, seed=5)).predict(known)[0])
    with pytest.raises(UserError, match="no step"):
        train(known[:1], quick)


@pytest.mark.parametrize("kind", ["plain", "graph"])
def test_a_model_is_read_as_it_was_written(samples: list[StateSample], tmp_path: Path, kind: str) -> None:
    model = train(samples[:10], replace(QUICK, kind=kind, epochs=1, members=2, encoder=SMALL))  # type: ignore[arg-type]
    model.save(tmp_path)
    again = EffectPredictor.load(tmp_path)
    for one, other in zip(model.predict(samples), again.predict(samples), strict=True):
        assert other == pytest.approx(one, abs=2e-2)  # stored with half the digits


def test_rules_are_found_by_name(samples: list[StateSample], tmp_path: Path) -> None:
    model = train(samples[:10], replace(QUICK, epochs=1))
    model.save(tmp_path)
    text = json.loads((tmp_path / DESCRIPTION).read_text("utf-8"))
    rule = int(samples[0].observation["candidate_rule"][0])
    text["rules"][rule] = "NoSuchRule"
    (tmp_path / DESCRIPTION).write_text(json.dumps(text))
    again = StoredEffects.load(tmp_path).members[0]["rule.weight"]
    before = model.members[0].state_dict()["rule.weight"].numpy()
    assert not again[rule].any()
    others = [number for number in range(len(before)) if number != rule]
    assert np.allclose(again[others], before[others], atol=1e-3)


@pytest.mark.parametrize("damage", ["no file", "weights", "description", "version"])
def test_what_is_no_model_is_refused(samples: list[StateSample], tmp_path: Path, damage: str) -> None:
    train(samples[:4], replace(QUICK, epochs=1)).save(tmp_path)
    if damage == "no file":
        (tmp_path / WEIGHTS).unlink()
    elif damage == "weights":
        (tmp_path / WEIGHTS).write_bytes(b"x" * 100)
    else:
        text = json.loads((tmp_path / DESCRIPTION).read_text("utf-8"))
        text = {} if damage == "description" else {**text, "version": 99}
        (tmp_path / DESCRIPTION).write_text(json.dumps(text))
    with pytest.raises(UserError):
        EffectPredictor.load(tmp_path)


def test_features_that_never_differ_in_training_do_not_count(samples: list[StateSample]) -> None:
    """On a machine with other blocks than that of the labels, predictions stay the same."""
    block = CONTEXT.index("block")
    assert len({float(sample.observation["context"][block]) for sample in samples}) == 1
    model = train(planted(samples[:20], by_number), replace(QUICK, epochs=2))
    others = []
    for sample in samples:
        context = sample.observation["context"].copy()
        context[block] -= 0.5
        others.append(replace(sample, observation={**sample.observation, "context": context}))
    for one, other in zip(model.predict(samples), model.predict(others), strict=True):
        assert other == pytest.approx(one, abs=1e-4)


@pytest.mark.parametrize("name", ["threads", "cores"])
def test_threads_and_cores_are_not_looked_at(samples: list[StateSample], name: str) -> None:
    """Tables are timed on one or two."""
    sample = samples[0]
    context = sample.observation["context"].copy()
    context[CONTEXT.index(name)] = 0.6
    other = replace(sample, observation={**sample.observation, "context": context})
    assert np.array_equal(sample.plain.numbers, other.plain.numbers)
