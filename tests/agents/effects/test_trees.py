"""Boosted trees against what was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agents.effects.samples import StateSample
from agents.effects.trees import BINS, BoostedTrees, TreePredictor, TreeSettings, boosted
from graph_rewrite.errors import UserError

ALL = TreeSettings(trees=60, depth=3, rate=0.3, features=1.0, rows=1.0, penalty=0.1)


def test_trees_learn_interactions() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, BINS, (800, 5))
    targets = np.where(rows[:, 1] > 15, 1.0, -1.0) * np.where(rows[:, 3] > 20, 1.0, 0.2)
    found = boosted(rows, targets, np.ones(800), ALL)
    assert abs(found.predict(rows) - targets).mean() < 0.05
    fresh = random.integers(0, BINS, (200, 5))
    told = np.where(fresh[:, 1] > 15, 1.0, -1.0) * np.where(fresh[:, 3] > 20, 1.0, 0.2)
    assert abs(found.predict(fresh) - told).mean() < 0.1


def test_weights_are_how_often_a_row_counts() -> None:
    rows = np.zeros((2, 1), dtype=np.int64)
    found = boosted(rows, np.array([0.0, 1.0]), np.array([3.0, 1.0]), replace(ALL, penalty=1e-9))
    assert found.predict(rows) == pytest.approx([0.25, 0.25])


def test_a_tree_by_hand() -> None:
    """Feature 1 up to 4 goes left, then feature 0 up to 9."""
    tree = BoostedTrees(1.0, np.array([[1, 0, 0]]), np.array([[4, 9, BINS]]), np.array([[0.1, 0.2, 0.3, 0.4]]))
    rows = np.array([[9, 4], [10, 4], [0, 5], [31, 31]])
    assert tree.predict(rows) == pytest.approx([1.1, 1.2, 1.3, 1.3])


def test_effects_of_rules_are_learnt_with_their_uncertainty(samples: list[StateSample]) -> None:
    random = np.random.default_rng(0)
    known = []
    for sample in samples:
        rules = sample.observation["candidate_rule"][: len(sample.effects)]
        noise = random.normal(0.0, np.where(rules % 2, 0.02, 0.2))
        effects = np.where(rules % 2, 0.3, -0.2) + noise
        known.append(replace(sample, effects=effects, errors=np.full(len(rules), 0.01)))
    means, deviations = TreePredictor(known, TreeSettings(trees=80)).predict(known)
    odd = np.concatenate([one.observation["candidate_rule"][: len(one.effects)] for one in known]) % 2 == 1
    assert means[odd].mean() > 0.15
    assert means[~odd].mean() < 0.0
    assert np.median(deviations[odd]) < np.median(deviations[~odd])
    again, _ = TreePredictor(known, TreeSettings(trees=80)).predict(known)
    assert np.array_equal(means, again)


def test_nothing_to_learn_from_is_refused(samples: list[StateSample]) -> None:
    with pytest.raises(UserError, match="no step"):
        TreePredictor([replace(samples[0], effects=np.full(len(samples[0].effects), np.nan))], TreeSettings())
