"""Fine-tuning on one model: searches with the policy time chains of rewrites, and it learns from all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agents.conclusion.recordings import actions_of, recording_or_none
from agents.core.base import Budget, Search, Visit
from agents.core.config import Config
from agents.effects.tabulating import tabulated
from agents.fine_tuning.lessons import Rehearsal, fine_tuning_config, lesson
from agents.ppo.checkpoint import Checkpoint, check_episodes, load_checkpoint, save_checkpoint
from agents.ppo.progress import TrainingProgress
from agents.ppo.training_state import TrainingState, load_state, measured_on, save_state
from agents.regional.agent import RegionalAgent
from agents.regional.chains import Timer
from agents.regional.options import RegionalOptions
from agents.regional.prior import proposing
from agents.searching.known_starts import Start
from agents.universal.decisions import TableDecision
from agents.universal.prior import UniversalPrior
from agents.universal.rollouts import best_shares, policy_choices, saved_shares
from agents.universal.trainer import AFTER
from envs.window.tabulation import NoWindowError
from graph_rewrite.experience.exchange import labels_of, merge
from graph_rewrite.experience.log import ExperienceLog
from graph_rewrite.experience.store import ExperienceStore
from graph_rewrite.latency import MeasurementCache
from graph_rewrite.replay import read_recording, replay
from graph_rewrite.task.problem import Problem

EXPERIENCE, BEST, WINDOWS = "experience.sqlite3", "best.actions.json", "windows.sqlite3"
"""Files of a run's folder: what was timed, the rewrites of the best graph, and times of windows by their content."""
LEAST_ROUND = 0.25
"""Share of a round's search that must be left for another round to begin."""
MOST_STARTS = 3
"""Graphs that the search at the end begins with: the best of each round, the fastest first."""

SEARCH = RegionalOptions(climb=False)
"""Settings of the searches of a training: the climb by whole models times no windows."""

OnStep = Callable[[TrainingProgress], None]


@dataclass(frozen=True, slots=True)
class FineTuningOptions:
    """Options of a fine-tuning beside the configuration."""

    uri: str
    """Names the model in the checkpoint."""
    rehearsal: Rehearsal
    seed: int = 0
    device: str = "cpu"
    tensorboard_log: Path | None = None
    search: RegionalOptions = SEARCH
    """Settings of the searches that time chains."""


class FineTuner:
    """Fine-tunes a policy of windows on one model, in rounds. A search by windows with the policy times chains of
    rewrites; then the policy learns from all that were timed so far: it imitates the best ones, predicts what each step
    saves, and plays the table of them by PPO. The next search begins with the original graph again. It looks at what
    the policy proposes now, and what was timed before takes no time again.

    Training ends after `training.seconds`, or with a round that times nothing new.

    Args:
        problem: the model, with its deployment.
        options: seed, device, and what is rehearsed.
        config: settings of a training on windows.
        run: the run's folder.
        taught: the policy to begin with.
        resume: folder of a run on the same model to go on from: what it timed and found counts as found here.
        timer: makes what times windows, as for `RegionalAgent`.

    Raises:
        CheckpointError: the policy was trained on whole models, or does not fit this version.
    """

    def __init__(
        self,
        problem: Problem,
        options: FineTuningOptions,
        config: Config,
        run: Path,
        taught: Checkpoint,
        resume: Path | None = None,
        *,
        timer: Callable[[Problem], Timer] | None = None,
    ) -> None:
        check_episodes(taught, "windows")
        self.problem, self.options, self.config, self.run_folder = problem, options, config, run
        self.progress, self._timer = TrainingProgress(), timer
        self.found: dict[str, Visit] = {}
        """The best graph of each round, by its hash."""
        self._known: list[Start] = []
        """The best graph of the run that is gone on from."""
        self._taught, self.checkpoint = taught, taught
        self._rehearsed: list[TableDecision] | None = None
        self._begin = time.monotonic()
        self._on_step: OnStep = lambda progress: None
        UniversalPrior(taught, problem.deployment)  # a policy that does not fit shows before anything is timed
        save_checkpoint(self.folder, taught.description, taught.weights)
        if resume is not None:
            self._take_up(resume)

    @property
    def folder(self) -> Path:
        """The folder of the checkpoint."""
        return self.run_folder / "checkpoint"

    @property
    def starts(self) -> list[Start]:
        """The best graphs that were found, the fastest first."""
        found = sorted(self.found.values(), key=lambda visit: -visit.latency.lower_bound)
        own = [Start(visit.graph, visit.actions) for visit in found[:MOST_STARTS]]
        return [*own, *(start for start in self._known if start.graph.hash not in self.found)]

    def run(self, on_step: OnStep | None = None) -> TrainingProgress:
        """Train in rounds until the seconds are spent; KeyboardInterrupt passes through after a save.

        Args:
            on_step: told of the progress after each timing, each batch of imitation and each step of PPO.
        """
        self._begin, self._on_step = time.monotonic(), on_step or self._on_step
        least = LEAST_ROUND * self.config.fine_tuning.search_seconds
        # A run that was interrupted may have timed more than it has learnt from.
        learnt = self.progress.curve[-1][0] if self.progress.curve else 0
        try:
            while self._left() >= least:
                self._search(self.config.fine_tuning.search_seconds)
                if self.progress.labels == learnt:
                    break
                self._learn()
                learnt = self.progress.labels
                self.progress.rounds += 1
                self.save()
        finally:
            self.save()
        return self.progress

    def save(self) -> None:
        """Write the state of the training beside the checkpoint, and the rewrites of the best graph."""
        progress, here = replace(self.progress), measured_on(self.problem.deployment)
        save_state(self.folder, TrainingState(self.options.uri, progress=progress, measured_on=here))
        best = next(iter(self.starts), None)
        if best is not None and best.actions:
            recording = recording_or_none(self.problem, best.actions, best.graph)
            if recording is not None:
                recording.write(self.run_folder / BEST)

    def close(self) -> None:
        """Do nothing: every search ends its own workers."""

    def _left(self) -> float:
        return self.config.training.seconds - (time.monotonic() - self._begin)

    def _tell(self) -> None:
        self.progress.seconds = time.monotonic() - self._begin
        self._on_step(self.progress)

    def _search(self, seconds: float) -> None:
        """Search from the original graph with the policy as it is."""
        problem, file = self.problem, self.run_folder / EXPERIENCE
        agent = RegionalAgent(
            self.options.search,
            timer=self._timer,
            log=ExperienceLog(ExperienceStore(file)),
            cache=MeasurementCache(self.run_folder / WINDOWS),
        )
        agent.prior_for = lambda _: proposing(UniversalPrior(self.checkpoint, problem.deployment), problem.deployment)
        seconds = min(seconds, self._left())
        # With a deadline, what an earlier round has timed costs nothing. Nothing is concluded from the search: it keeps
        # no time for that, and ends for no lead that a conclusion would need time to confirm.
        budget = Budget(10**9, seconds, deadline=time.monotonic() + seconds, provisional=True)

        def told(search: Search) -> None:
            best = search.best
            if best is not None and best.latency.ok:
                self.progress.best_speedup = max(self.progress.best_speedup, best.latency.lower_bound)
            self._tell()

        search = Search(problem, budget, told)
        try:
            with search.running():
                agent.explore(search, self.options.seed + self.progress.rounds)
        finally:
            best = search.best
            if best is not None and best.latency.ok and best.actions:
                self.found[best.graph.hash] = best
            self.progress.labels = _count(file)

    def _learn(self) -> None:
        """Learn from all that was timed so far; nothing where none of it can be made again."""
        options, config = self.options, self.config
        try:
            labels = labels_of(self.run_folder / EXPERIENCE)
            table = tabulated(labels, progress=lambda done, of: self._tell()).table
        except NoWindowError:
            return
        described = self._taught.description
        settings = fine_tuning_config(config, described, max(1.0, self._left()))
        if self._rehearsed is None:
            self._rehearsed = options.rehearsal.decisions(settings.env.horizon)
        # What it has learnt in earlier rounds is in the table, too: it is told once.
        own = replace(self.checkpoint.description, trained_on=described.trained_on, left_out=described.left_out)
        taught = replace(self.checkpoint, description=own)
        trainer = lesson(
            table, options.uri, settings, self.folder, taught, self._rehearsed, options.seed + self.progress.rounds,
            options.device, options.tensorboard_log,
        )  # fmt: skip
        before = (self.progress.epochs, self.progress.timesteps)

        def told(progress: TrainingProgress) -> None:
            self.progress.epochs, self.progress.timesteps = (
                before[0] + progress.epochs, before[1] + progress.timesteps,
            )  # fmt: skip
            self._tell()

        try:
            trainer.run(told)
        finally:
            trainer.close()
        self.checkpoint = load_checkpoint(self.folder)
        windows: Sequence[int] = trainer.windows
        choices = policy_choices(trainer.policy, table, windows, settings.env.horizon)
        saved, best = saved_shares(table, windows, choices).mean(), best_shares(table, windows).mean()
        share = float(saved / best) if best > 0.0 else 1.0
        self.progress.recent = [share]
        self.progress.curve.append((self.progress.labels, share, self.progress.best_speedup))

    def _take_up(self, run: Path) -> None:
        """Go on from a run on the same model."""
        state = load_state(run / "checkpoint")
        if state is None or state.trained_on != self.options.uri:
            return
        self.progress = state.progress
        if state.measured_on not in ("", measured_on(self.problem.deployment)):
            self.progress.best_speedup = 1.0
        # The windows of this model are told anew: they are a part of those that it learns from now.
        described = self._taught.description
        earlier = described.trained_on.partition(AFTER)[2] or described.trained_on
        self._taught = replace(self._taught, description=replace(described, trained_on=earlier))
        if (run / EXPERIENCE).is_file():
            store = ExperienceStore(self.run_folder / EXPERIENCE)
            try:
                merge([run / EXPERIENCE], store)
            finally:
                store.close()
        if (run / WINDOWS).is_file():
            MeasurementCache(self.run_folder / WINDOWS).take_over(run / WINDOWS)
        if (run / BEST).is_file():
            replayed = replay(read_recording(run / BEST), self.problem.model.graph, self.problem.rewriter, partial=True)
            if replayed.applied:
                self._known = [Start(replayed.graph, actions_of(replayed.applied))]


def _count(file: Path) -> int:
    store = ExperienceStore(file)
    try:
        return store.count()
    finally:
        store.close()
