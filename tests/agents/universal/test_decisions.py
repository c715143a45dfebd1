"""Decisions of a table: gains against brute force, targets, and outputs of the network whatever the padding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agents.effects.samples import StateSample, samples_of, state_of
from agents.ppo.batches import batch_of, trimmed
from agents.universal.decisions import FAILURE, TableDecision, believed_shares, decisions_of
from agents.universal.observations import unmeasured
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from envs.window import WindowTable
from tests.agents.universal.planted_table import CONFIG

NO_SAMPLE: StateSample = None  # type: ignore[assignment]


def test_gains_are_those_of_the_best_chain_through_each_step(table: WindowTable) -> None:
    arrays, believed = table.arrays, believed_shares(table)

    def best(state: int) -> float:
        behind = range(arrays["step_start"][state], arrays["step_start"][state + 1])
        return max([float(believed[state]), *(best(int(arrays["step_next"][step])) for step in behind)])

    windows = range(0, len(table.windows), 20)
    decisions = decisions_of(table, windows)
    assert {decision.sample.window for decision in decisions} <= set(windows)
    assert len(decisions) > 60
    for decision in decisions:
        here = believed[state_of(table, decision.sample)]
        after = arrays["step_next"][decision.sample.first_step :][: len(decision.gains)]
        assert decision.gains == pytest.approx([best(int(state)) - here for state in after])
    assert believed == pytest.approx(arrays["state_share"], abs=1e-4)  # exact measurements


def test_steps_that_fail_are_never_imitated(table: WindowTable) -> None:
    failed = np.ones(table.steps, dtype=np.bool_)
    every = decisions_of(replace(table, arrays={**table.arrays, "step_failed": failed}), range(100))
    assert all((decision.gains == FAILURE).all() for decision in every)
    assert all(decision.target(0.0, 0.01)[-1] == 1.0 for decision in every)


def test_imprecise_measurements_count_less(table: WindowTable) -> None:
    halves = np.full(table.steps, 0.3, dtype=np.float32)
    doubtful = believed_shares(replace(table, arrays={**table.arrays, "step_half": halves}))
    sure = believed_shares(table)
    assert doubtful == pytest.approx(sure * 0.49, rel=0.02)
    assert abs(sure).max() > 0.1


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=6), st.sampled_from([0.0, 0.01, 0.05]))
def test_targets_prefer_what_gains_most(gains: list[float], least: float) -> None:
    decision = TableDecision(NO_SAMPLE, np.array(gains))
    soft, hard = decision.target(0.03, least), decision.target(0.0, least)
    worth = [*(gain - least for gain in gains), 0.0]
    assert soft.sum() == pytest.approx(1.0)
    assert hard.sum() == hard.max() == 1.0
    assert worth[int(hard.argmax())] == max(worth)
    if max(gains) <= least:
        assert hard[-1] == 1.0
    order = np.argsort(worth)
    assert (np.diff(soft[order]) >= -1e-12).all()


def test_outputs_depend_on_no_padding_and_are_those_that_ppo_takes(
    options: WindowTrainingOptions, shipped: WindowTable, tmp_path: Path
) -> None:
    trainer = WindowTrainer(options, CONFIG, tmp_path)
    policy = trainer.policy
    torch.nn.init.normal_(policy.heads.score.weight)
    policy.set_training_mode(False)
    seen = [unmeasured(one.observation, one.depth) for one in samples_of(shipped, trainer.windows[:20])]
    with torch.no_grad():
        together = policy.outputs(batch_of([trimmed(observation) for observation in seen]))
        for row, observation in enumerate(seen):
            steps = int(observation["sizes"][2])
            alone = policy.outputs(batch_of([observation]))
            mask = np.zeros(len(observation["candidate_rule"]), dtype=bool)
            mask[:steps] = mask[-1] = True
            theirs = policy.action_probabilities(observation, mask).log()
            for mine in (together.log_probabilities[row], alone.log_probabilities[0]):
                assert torch.allclose(mine[:steps], theirs[:steps], atol=1e-4)
                assert torch.allclose(mine[-1], theirs[-1], atol=1e-4)
                assert mine[steps:-1].numel() == 0 or mine[steps:-1].max() < -1e6
            assert torch.allclose(together.effects[row, :steps], alone.effects[0, :steps], atol=1e-4)
            value = policy.predict_values(policy.obs_to_tensor(observation)[0]).flatten()
            assert torch.allclose(together.values[row], value[0], atol=1e-4)
    trainer.close()
