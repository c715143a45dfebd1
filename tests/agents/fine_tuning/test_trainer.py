"""Fine-tuning on a model: rounds of search and learning, what is kept of them, and going on from a run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agents.core.config import Config, FineTuningConfig
from agents.effects.tabulating import tabulated
from agents.fine_tuning.lessons import Rehearsal
from agents.fine_tuning.trainer import BEST, EXPERIENCE, WINDOWS, FineTuner, FineTuningOptions
from agents.ppo.checkpoint import Checkpoint, load_checkpoint
from agents.ppo.description import CheckpointError
from agents.ppo.progress import TrainingProgress
from agents.universal.prior import restore_window_policy
from agents.universal.rollouts import best_shares, policy_choices, saved_shares
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from envs.window import WindowTable
from envs.window.table import SHIPPED
from graph_rewrite import Graph
from graph_rewrite.experience.exchange import labels_of
from graph_rewrite.experience.store import ExperienceStore
from graph_rewrite.latency import Effort, Latency, MeasurementCache
from graph_rewrite.replay import read_recording
from graph_rewrite.task.problem import Problem
from tests.agents.toys import ExactMeter
from tests.agents.universal.planted_table import CONFIG, FAMILIES
from tests.envs.window.drawn import EXHAUSTIVE, DrawnTimer, convolutions

LEARNING = replace(
    CONFIG,
    training=replace(CONFIG.training, seconds=5000.0),
    fine_tuning=FineTuningConfig(search_seconds=1000.0, epochs=150, learning_rate=5e-3, timesteps=32, rehearsed=4),
)
"""Its searches end by themselves, long before their time is up: what is timed does not depend on other load."""
SEARCH = replace(EXHAUSTIVE, climb=False, depth=1)
"""What is timed does not depend either on what the shipped models predict."""
URI = "file:convolutions.onnx"

Make = Callable[..., FineTuner]


@pytest.fixture(scope="module")
def table() -> WindowTable:
    return WindowTable.load(SHIPPED)


@pytest.fixture(scope="module")
def taught(table: WindowTable, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A small policy that has seen a few windows once, when there was one rule less than now."""
    config = replace(
        CONFIG, training=replace(CONFIG.training, total_timesteps=0), pretraining=replace(CONFIG.pretraining, epochs=1)
    )  # fmt: skip
    without = tuple(sorted({window.family for window in table.windows} - set(FAMILIES)))
    folder = tmp_path_factory.mktemp("taught")
    trainer = WindowTrainer(WindowTrainingOptions(table, "few", without), config, folder)
    trainer.run()
    trainer.close()
    return older(load_checkpoint(folder))


def older(checkpoint: Checkpoint) -> Checkpoint:
    """The same policy without a rule that it was never offered."""
    described, key = checkpoint.description, "features_extractor.rule.weight"
    kept = [rule for rule in described.rules if rule != "Winograd4x4"]
    assert len(kept) == len(described.rules) - 1
    rows = [described.rules.index(rule) for rule in kept]
    weights = {**checkpoint.weights, key: checkpoint.weights[key][rows]}
    return Checkpoint(checkpoint.path, replace(described, rules=tuple(kept)), weights)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """A few convolutions; a graph is the faster the more operators it has."""
    found = convolutions(tmp_path)
    assert isinstance(found.meter, ExactMeter)
    found.meter.cost = lambda graph: 10.0 / len(graph.nodes)
    return found


@pytest.fixture
def make(problem: Problem, taught: Checkpoint, table: WindowTable, tmp_path: Path) -> Make:
    """Makes trainings on a few convolutions, whose windows are never timed but drawn."""

    def made(
        name: str, config: Config = LEARNING, begin: Checkpoint = taught, resume: Path | None = None, uri: str = URI
    ) -> FineTuner:
        options = FineTuningOptions(uri, Rehearsal(table, config.fine_tuning.rehearsed), search=SEARCH)
        return FineTuner(
            problem, options, config, tmp_path / name, begin, resume, timer=lambda _: DrawnTimer(failing=0.1)
        )  # fmt: skip

    return made


def labels(trainer: FineTuner) -> int:
    store = ExperienceStore(trainer.run_folder / EXPERIENCE)
    try:
        return store.count()
    finally:
        store.close()


def test_the_policy_learns_what_was_timed(make: Make, taught: Checkpoint) -> None:
    trainer = make("run")
    progress = trainer.run()
    assert progress.labels == labels(trainer) > 10
    assert progress.rounds >= 1
    assert progress.epochs == 150 * progress.rounds
    found = load_checkpoint(trainer.run_folder)
    before = re.escape(taught.description.trained_on)
    # Once, however many rounds there were.
    assert re.fullmatch(rf"\d+ windows of 1 architectures in {URI}, after {before}", found.description.trained_on)
    assert not torch.equal(found.weights["effects.0.weight"], taught.weights["effects.0.weight"])
    offered = {*(found.description.offered or ())}
    assert offered > {*(taught.description.offered or ())}
    assert any("Winograd" in rule for rule in offered)
    timed = tabulated(labels_of(trainer.run_folder / EXPERIENCE)).table
    windows = range(len(timed.windows))
    before_it, after_it = (
        saved_shares(timed, windows, policy_choices(restore_window_policy(policy), timed, windows)).mean()
        for policy in (taught, found)
    )
    best = best_shares(timed, windows).mean()
    assert after_it > before_it + 0.3 * (best - before_it)
    at, share, _ = progress.curve[-1]
    assert (at, share) == (progress.labels, pytest.approx(after_it / best))


def test_a_search_keeps_no_time_to_confirm_a_lead(make: Make, problem: Problem) -> None:
    meter = problem.meter
    assert isinstance(meter, ExactMeter)
    exact = meter.measure

    def doubtful(graph: Graph, effort: Effort = "screen") -> Latency:
        latency = exact(graph, effort)
        time.sleep(0.1)  # what a measurement takes, and so many times as long to confirm what it found
        return replace(latency, ci95=(0.5 * latency.speedup, 2.0 * latency.speedup))

    meter.measure = doubtful  # type: ignore[method-assign]
    make("run").run()
    assert len(set(meter.measured)) > 3  # the original, the graphs of the first round, and what was found from those


def test_it_ends_where_a_round_times_nothing_new(make: Make) -> None:
    trainer = make("run")
    rounds: list[int] = []
    progress = trainer.run(lambda progress: rounds.append(progress.rounds))
    assert progress.seconds < LEARNING.training.seconds
    assert max(rounds) == progress.rounds


def test_the_best_graph_of_each_round_is_where_the_search_at_the_end_begins(make: Make, problem: Problem) -> None:
    trainer = make("run")
    trainer.run()
    assert trainer.found
    start = trainer.starts[0]
    assert start.graph.hash in trainer.found
    recording = read_recording(trainer.run_folder / BEST)
    assert [step.rule for step in recording.steps] == [action.rule for action in start.actions]


def test_an_interrupted_training_goes_on_with_what_it_had(make: Make) -> None:
    first = make("first")

    def interrupted(progress: TrainingProgress) -> None:
        if progress.epochs >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(interrupted)
    known, best = labels(first), first.starts[0]
    assert known > 10
    MeasurementCache(first.run_folder / WINDOWS).put({"a": "window"}, {"ms": 1.0})
    second = make("second", begin=load_checkpoint(first.run_folder), resume=first.run_folder)
    assert labels(second) == known
    assert [start.graph.hash for start in second.starts] == [best.graph.hash]
    assert second.progress.labels == known
    assert MeasurementCache(second.run_folder / WINDOWS).get({"a": "window"}) == {"ms": 1.0}
    second.run()
    assert labels(second) >= known
    assert second.progress.rounds >= 1  # what was timed and not learnt is learnt, though nothing new is timed
    assert load_checkpoint(second.run_folder).description.trained_on.count(", after ") == 1


@pytest.mark.parametrize(("measured_on", "speedup"), [(None, 9.0), ("another machine", 1.0)])
def test_a_speedup_that_was_measured_elsewhere_is_no_best_one(
    make: Make, measured_on: str | None, speedup: float
) -> None:
    first = make("first")
    first.save()
    file = first.folder / "training.json"
    values = json.loads(file.read_text())
    values["progress"]["best_speedup"] = 9.0
    file.write_text(json.dumps({**values, "measured_on": measured_on or values["measured_on"]}))
    second = make("second", resume=first.run_folder)
    assert second.progress.best_speedup == speedup


def test_a_run_on_another_model_lends_its_policy_alone(make: Make) -> None:
    first = make("first")
    first.run()
    other = make("other", begin=load_checkpoint(first.run_folder), resume=first.run_folder, uri="file:another.onnx")
    assert other.progress == TrainingProgress()
    assert not other.starts
    assert not (other.run_folder / EXPERIENCE).exists()


def test_no_time_leaves_the_policy_as_it_was(make: Make, taught: Checkpoint) -> None:
    config = replace(LEARNING, training=replace(LEARNING.training, seconds=0.0))
    trainer = make("run", config)
    assert trainer.run().rounds == 0
    found = load_checkpoint(trainer.run_folder)
    assert found.description == taught.description
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in taught.weights.items())
    assert not trainer.starts


def test_a_policy_of_whole_graphs_is_refused(make: Make) -> None:
    with pytest.raises(CheckpointError, match="not on windows"):
        make("run", begin=load_checkpoint("checkpoints/bert-tiny"))
