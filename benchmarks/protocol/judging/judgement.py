"""Judgements as a whole: sessions that are kept as they end, and what they say of every contestant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from agents.reporting.runs import write_json
from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.judging.intervals import Interval, over_sessions, session_ratio
from benchmarks.protocol.judging.judge import Judge, Protocol, Session, SessionTimes
from benchmarks.protocol.judging.same_models import judged_as
from graph_rewrite.system.huge_pages import pages_of_children

MakeJudge = Callable[[Contestant, Sequence[Contestant]], Judge]
Wait = Callable[[str], dict[str, Any]]
"""Waits for a quiet machine, and returns the interference that is left."""
Quiet = Callable[[], AbstractContextManager[Any]]
"""Keeps the machine to itself, such as a lock."""


@dataclass(frozen=True)
class Ruling:
    """The judgement on one contestant; times in milliseconds per run."""

    wall: Interval | None
    """Its speed-up by the wall clock; None where it failed or its outputs are wrong."""
    cpu: Interval | None
    baseline_ms: float | None
    latency_ms: float | None
    sessions: tuple[float, ...] = ()
    """Log ratios by the wall clock, one per session."""
    max_rel_error: float | None = None
    verified: bool = False
    failure: str = ""
    """The reason why it does not count; empty where it counts."""
    judged_as: str = ""
    """The contestant that is the same model and was timed for it; empty where it was timed itself."""


@dataclass(frozen=True)
class Judgement:
    """All sessions of one model's judgement. `key` is the same where contestants and protocol are."""

    key: str
    sessions: tuple[Session, ...]
    verdicts: dict[str, Ruling] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """Return how it was taken, for the results file."""
        disturbed = [s.number for s in self.sessions if s.interference and not s.interference.get("quiet", True)]
        return {
            "judgement": self.key, "sessions_played": len(self.sessions),
            "groups": max((session.groups for session in self.sessions), default=0), "disturbed_sessions": disturbed,
            "memory_pages": pages_of_children(),
        }  # fmt: skip


def key_of(original: Contestant, contestants: Sequence[Contestant], setting: dict[str, Any]) -> str:
    """Return a text that tells judgements apart: by contestants, the state of their files, and the setting."""
    listed = [_state(one) for one in (original, *sorted(contestants, key=lambda one: one.name))]
    text = json.dumps({"contestants": listed, "setting": setting}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _state(contestant: Contestant) -> list[Any]:
    stat = None if contestant.path is None or not contestant.path.exists() else contestant.path.stat()
    return [contestant.to_json(), None if stat is None else [stat.st_size, stat.st_mtime_ns]]


def judged(
    folder: Path,
    original: Contestant,
    contestants: Sequence[Contestant],
    protocol: Protocol,
    make: MakeJudge,
    *,
    setting: dict[str, Any],
    wait: Wait,
    what: str,
    at_once: int = 1,
    quiet: Quiet = nullcontext,
) -> Judgement:
    """Play the sessions of a judgement that are not in its folder yet, each kept there as it ends. Contestants that are
    the same model, run in the same way, have one process in a session: what is timed holds for all of them.

    Args:
        folder: of the model; a judgement has a folder of its own in it.
        setting: what timings depend on beside the protocol, such as threads and cores.
        what: the judgement in words, for messages.
        at_once: sessions that are played side by side, each in a lane of the judge.
        quiet: entered around the sessions of each such group.

    Raises:
        MachineError: the original cannot be opened or run.
        OSError: the file of a contestant cannot be read.
        ValueError: two contestants have the same name.
    """
    names = [original.name, *(one.name for one in contestants)]
    if len(set(names)) < len(names):
        raise ValueError(f"contestants of one judgement need names of their own, got {sorted(names)}")
    key = key_of(original, contestants, {**setting, **protocol.to_json()})
    place = folder / f"judgement-{key}"
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"session-{number:02}.json" for number in range(protocol.sessions)]
    known = {number: session for number, path in enumerate(paths) if (session := _known(path)) is not None}
    missing = [number for number in range(protocol.sessions) if number not in known]
    timed = judged_as(contestants)
    judge = make(original, [one for one in contestants if timed[one.name] == one.name]) if missing else None
    for group in (missing[first : first + at_once] for first in range(0, len(missing), at_once)):
        assert judge is not None
        excluded = {name for one in known.values() for name in (*one.failures, *one.wrong)}
        interference = wait(f"{what}, session {' and '.join(str(n + 1) for n in group)} of {protocol.sessions},")
        with quiet():
            for session in played(judge, group, excluded):
                session.interference = interference
                write_json(paths[session.number], session.to_json())
                known[session.number] = session
    sessions = [known[number] for number in sorted(known)]
    verdicts = {
        name: replace(verdict_on(first, sessions), judged_as="" if name == first else first)
        for name, first in timed.items()
    }
    return Judgement(key, tuple(sessions), verdicts)


def played(judge: Judge, numbers: Sequence[int], excluded: Collection[str]) -> list[Session]:
    """Play sessions side by side, each in a lane of its own. A failure of one, or an interruption, ends all of them."""
    with ThreadPoolExecutor(len(numbers)) as pool:
        waiting = [pool.submit(judge.session, number, excluded, lane) for lane, number in enumerate(numbers)]
        try:
            for future in as_completed(waiting):
                future.result()
        except BaseException:
            judge.stop()
            raise
    return [future.result() for future in waiting]


def _known(path: Path) -> Session | None:
    try:
        return Session.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def verdict_on(name: str, sessions: Sequence[Session]) -> Ruling:
    """Return what some sessions say of a contestant. One that failed once, or whose outputs are wrong, has no
    speed-up."""
    error = next((session.errors[name] for session in sessions if name in session.errors), None)
    failure = next((session.failures[name] for session in sessions if name in session.failures), "")
    wrong = next((session.wrong[name] for session in sessions if name in session.wrong), "")
    times = [session.times[name] for session in sessions if name in session.times]
    if failure or wrong or len(times) < 2:
        why = wrong or failure or "it was not timed"
        return Ruling(None, None, None, None, max_rel_error=error, verified=False, failure=why)
    ratios = [session_ratio(one.original_wall, one.wall) for one in times]
    cpu = [session_ratio(one.original_cpu, one.cpu) for one in times] if _has_cpu_times(times) else None
    return Ruling(
        over_sessions(ratios), None if cpu is None else over_sessions(cpu),
        1e3 * _typical([one.original_wall for one in times]), 1e3 * _typical([one.wall for one in times]),
        tuple(ratios), error, True,
    )  # fmt: skip


def _has_cpu_times(times: Sequence[SessionTimes]) -> bool:
    """Return whether the CPU clock told something: on a device it does not, and coarse ones stand still."""
    return all(min(*one.cpu, *one.original_cpu) > 0.0 for one in times)


def _typical(by_session: Sequence[Sequence[float]]) -> float:
    return median(median(values) for values in by_session)
