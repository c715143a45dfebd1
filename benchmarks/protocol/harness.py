"""The harness: searches, then one judgement for each model, then rows. Whatever is done already is not repeated."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agents.reporting.runs import file_name, write_json
from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import ORIGINAL, Contestant
from benchmarks.protocol.judging.judgement import Judgement, MakeJudge, Quiet, Wait, judged
from benchmarks.protocol.plan import Peers, TablePlan, chosen_peers, settings_of
from benchmarks.protocol.preparing import on_device, prepared
from benchmarks.protocol.searches.runs import DONE, OUTCOME, RESULT, Run, Search, carried_out, disturbed
from benchmarks.protocol.table import Row, missing_row, original_row, peer_row, run_row
from graph_rewrite.errors import MachineError, UserError

RESULT_GROWTH = 2.0
"""Times the size of its original that the files of a run may take."""
SPARE_BYTES = 2_000_000_000
"""Bytes of the disk that are left to other processes."""
Say = Callable[[str], None]
RowSink = Callable[[list[Row]], None]
"""Takes the rows of a model when they are complete."""


@dataclass(frozen=True)
class Tools:
    """The means of the harness; tests plant their own."""

    locate: Callable[[str], Path]
    """Returns the file of a model, exported where it is not there yet."""
    search: Search
    judging: Callable[[str, Path], MakeJudge]
    """Returns what makes the judge of a model, with a folder for its inputs and outputs."""
    wait: Wait
    peers: Peers
    commit: str
    setting: dict[str, Any]
    """What timings depend on beside protocol and contestants, such as the machine and its cores."""
    at_once: int = 1
    """Sessions of a judgement side by side."""
    searches_at_once: int = 1
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    """Returns the free bytes of the disk of a folder."""
    quiet: Quiet = nullcontext
    """Keeps the machine to a judgement."""
    say: Say = lambda text: None


class Harness:
    """Makes the rows of a table.

    Args:
        folder: of all runs and judgements; what it has is not repeated.
    """

    def __init__(self, plan: TablePlan, folder: Path, tools: Tools) -> None:
        self._plan, self._folder, self._tools = plan, folder, tools

    def rows(self, sink: RowSink = lambda rows: None) -> list[Row]:
        """Return all rows of the plan; `sink` gets those of each model as soon as they are complete."""
        found: list[Row] = []
        for models in self._searched_together():
            outcomes = self._outcomes([run for model in models for run in self._plan.runs(model)])
            for model in models:
                rows = self._model_rows(model, outcomes)
                sink(rows)
                found += rows
        for number in range(self._plan.aa if self._plan.models else 0):
            rows = [self._original_row(self._plan.models[number % len(self._plan.models)], number)]
            sink(rows)
            found += rows
        return found

    def _searched_together(self) -> Iterator[tuple[str, ...]]:
        """Yield models whose searches come before the first judgement: one, or several where searches of one model with
        the same budget would leave a core without work."""
        models, at_once = self._plan.models, self._tools.searches_at_once
        budgets = Counter(run.budget_s for model in models[:1] for run in self._plan.runs(model))
        together = at_once if any(count % at_once for count in budgets.values()) else 1
        for first in range(0, len(models), together):
            yield models[first : first + together]

    def _outcomes(self, runs: Sequence[Run]) -> dict[Run, dict[str, Any]]:
        """Return the outcomes of runs, known or new; the longest searches come first, so that equally long ones run
        side by side."""
        runs = sorted(runs, key=lambda run: -run.budget_s)
        outcomes = carried_out(runs, self._folder, partial(self._searched, {}), self._tools.searches_at_once)
        if reasons := disturbed(outcomes):
            for run, reason in reasons.items():
                self._tools.say(f"{run.model}, {run.contestant}, is repeated: {reason}")
            disturbed_runs = [run for run in runs if run in reasons]
            again = partial(self._searched, reasons)
            outcomes |= carried_out(disturbed_runs, self._folder, again, self._tools.searches_at_once, reasons)
        return outcomes

    def _model_rows(self, model: str, searched: Mapping[Run, dict[str, Any]]) -> list[Row]:
        outcomes = {run: searched[run] for run in self._plan.runs(model)}
        peers, missing = self._peers(model)
        contestants = [
            Contestant(run.contestant, ort_runner.MODULE, self._folder / run.place / RESULT)
            for run, outcome in outcomes.items()
            if outcome["status"] == DONE and outcome["verified"] and not outcome["kept_original"]
        ]
        judgement, failure = None, ""
        if contestants or peers:
            try:
                judgement = self._judged(model, [*contestants, *(peer for peer, _ in peers)], file_name(model), model)
            except MachineError as error:
                failure = str(error)
                self._tools.say(f"{model}: {failure}")
        rows = [run_row(run, outcome, judgement) for run, outcome in outcomes.items()]
        setting = self._setting()
        rows += [peer_row(model, one.name, judgement, seconds=s, setting=setting) for one, s in peers] + missing
        return [{**row, "failure": failure} if failure and row["failure"] == "it was not judged" else row
                for row in rows]  # fmt: skip

    def _setting(self) -> Row:
        return {**settings_of(self._plan), "commit": self._tools.commit}

    def _searched(self, reasons: Mapping[Run, str], runs: Sequence[tuple[Run, Path]]) -> list[dict[str, Any]]:
        """Carry out runs side by side; their outcomes are kept with the commit, the interference before them, and the
        reasons why they are repeated."""
        tools = self._tools
        interference = tools.wait("; ".join(f"{run.model}, {run.contestant}" for run, _ in runs))
        self._check_disk([tools.locate(run.model) for run, _ in runs])
        outcomes = []
        for (run, folder), found in zip(runs, tools.search(runs), strict=True):
            outcome = found | {"interference": interference, "commit": tools.commit, "side_by_side": len(runs)}
            outcome |= {"repeated": reasons[run]} if run in reasons else {}
            write_json(folder / OUTCOME, outcome)
            outcomes.append(outcome)
            tools.say(f"{run.model}, {run.contestant}: {outcome['reason']} ({outcome.get('seconds', 0.0):.0f} s)")
        return outcomes

    def _check_disk(self, originals: Sequence[Path]) -> None:
        """Refuse to search where the disk may fill up: a search whose file cannot be written would count as failed.

        Args:
            originals: the original of each run.

        Raises:
            UserError: too little is free.
        """
        files = (file for original in originals for file in original.parent.glob(f"{original.name}*"))
        needed = RESULT_GROWTH * sum(file.stat().st_size for file in files) + SPARE_BYTES
        free = self._tools.free(self._folder)
        if free < needed:
            raise UserError(
                f"{self._folder}: the next runs may take {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free. "
                "Every run keeps its optimised model: make room, or name a folder on another disk with --runs. What is "
                "done is kept, and the same command goes on from there"
            )

    def _peers(self, model: str) -> tuple[list[tuple[Contestant, float]], list[Row]]:
        """Prepare the peers. Return those that are there, with the seconds it took, and a row for each that is not."""
        tools, found, missing = self._tools, list[tuple[Contestant, float]](), list[Row]()
        for name in chosen_peers(self._plan.peers, tools.peers):
            try:
                if name not in tools.peers:
                    raise LookupError("there is no such peer")
                folder = self._folder / file_name(model) / "peers" / file_name(name)
                threads, versions = self._plan.threads, tools.setting.get("versions", {})
                peer, seconds = prepared(name, tools.peers[name], tools.locate(model), folder, threads, versions)
                found.append((on_device(peer, self._plan.provider), seconds))
            except Exception as error:  # whatever a foreign tool says about a model is a finding
                reason = " ".join(str(error).split()) or type(error).__name__
                missing.append(missing_row(model, name, "peer", reason[:500], self._setting()))
                tools.say(f"{model}, {name}: {reason}")
        return found, missing

    def _judged(self, model: str, contestants: Sequence[Contestant], place: str, what: str) -> Judgement:
        tools, folder = self._tools, self._folder / place
        return judged(
            folder, self._original(model, ORIGINAL), contestants, self._plan.protocol, tools.judging(model, folder),
            setting=tools.setting, wait=tools.wait, what=what, at_once=tools.at_once, quiet=tools.quiet,
        )  # fmt: skip

    def _original(self, model: str, name: str) -> Contestant:
        plain = Contestant(name, ort_runner.MODULE, self._tools.locate(model), {"plain": True})
        return on_device(plain, self._plan.provider)

    def _original_row(self, model: str, number: int) -> Row:
        """Judge an original against itself, in sessions of their own, so that such judgements are independent."""
        again = self._original(model, f"{ORIGINAL}/{number}")
        try:
            judgement = self._judged(model, [again], f"{file_name(model)}/original-{number}", f"{model} against itself")
        except MachineError as error:
            return missing_row(model, ORIGINAL, "control", str(error), self._setting()) | {"seed": number}
        return original_row(model, number, judgement, again.name, self._setting())
