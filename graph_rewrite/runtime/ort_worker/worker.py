"""The process that runs models: `python -m ort_worker`, started and fed by `WorkerClient`.

A model that crashes, hangs or exhausts this process costs one request, never the trainer. Requests are plain values
(paths, numbers, deployments), so a worker could serve them from anywhere that sees the files. For every request the
worker writes any number of `{"phase": ..., "expect_s": ...}` (what begins now, and how long it should take at most)
and then one `{"reply": ...}`, whose `status` is `ok`, `error` or `oom`. `feeds` is a recipe of inputs or a list of
them; runs take the inputs that they give in turn, both sides of a comparison the same ones in the same order.

Kinds of request: `hello`, `compare` (two models in turn; `clock` is `wall` or `cpu`, the time of the calling thread
alone; `traffic_bytes` of memory are read between two runs; on the inputs of `answers`, outputs are compared too and
the findings are in the reply), `time` (one model, by such a clock too), `optimizers`
(which of the runtime's optimisers change a model), `optimised` (writes what they make of it), `profile` (the time of
every kernel), `probe_cuda`. Any may say `within_s`, the seconds after which nobody waits for the reply: a comparison
then ends with the blocks that it has.

For tests of the faults, `REWRITEGYM_WORKER_FAULT` may hold `segfault:TEXT` or `hang:TEXT`: a candidate whose file name
contains TEXT then does that when it is opened.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np
import onnxruntime as ort

from .comparison import compare_answers
from .deployment import Deployment
from .feeds import FeedSpec, ModelInput
from .following import follow
from .plan import Plan
from .profiling import profile
from .rotating.pair import RotationPair
from .rotating.recipes import recipes_from_json
from .rotating.rotation import Accepts, Rotation
from .rotating.runner import Runner
from .runtimes.opening import runtime_of
from .session_runs import feeds_of
from .statistics import Block, is_enough
from .timing import Clock, block_budget, is_last_block, repeats_for, time_alone, time_block, warm_up
from .traffic import Traffic
from .wire import Message, read_message, write_message

FAULT_VARIABLE = "REWRITEGYM_WORKER_FAULT"

_OUT_OF_MEMORY = re.compile(
    r"failed to allocate|bad[ _]alloc|out of memory|cannot allocate memory|_ALLOC_FAILED|not enough memory",
    re.IGNORECASE,
)
_MESSAGE_LENGTH = 1000
_CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.thread_time}


class Worker:
    """Answers requests until the channel closes. Keeps the baseline session of the last screening open."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self._requests = requests
        self._replies = replies
        self._phase = ""
        self._kept: tuple[object, Runner] | None = None
        self._rotations = RotationPair()
        self._traffic = Traffic()
        self._handlers: dict[str, Callable[[Message], Message]] = {
            "hello": self._hello,
            "compare": self._compare,
            "time": self._time,
            "optimizers": self._optimizers,
            "optimised": self._optimised,
            "profile": self._profile,
            "probe_cuda": self._probe_cuda,
        }

    def serve(self) -> None:
        while (request := read_message(self._requests)) is not None:
            self._phase = ""
            try:
                reply = {"status": "ok", **self._handlers[request["kind"]](request)}
            except Exception as error:  # whatever a model does must reach the other side as a result
                reply = {"status": _status_of(error), "phase": self._phase, "message": _message_of(error)}
            write_message(self._replies, {"reply": reply})

    def _enter(self, phase: str, expect_s: float = 0.0) -> None:
        self._phase = phase
        write_message(self._replies, {"phase": phase, "expect_s": expect_s})

    def _hello(self, _request: Message) -> Message:
        return {"pid": os.getpid(), "onnxruntime": ort.__version__}

    def _compare(self, request: Message) -> Message:
        plan = Plan.from_json(request["plan"])
        within_s, traffic = float(request.get("within_s", math.inf)), int(request.get("traffic_bytes", 0))
        started = time.perf_counter()
        blocks, found = list[Block](), dict[str, Any]()
        alive: list[tuple[Runner, Runner]] = []
        for instance in range(plan.instances):
            # The sessions of the last block stay open until these are: freed first, their memory would be handed
            # out again at the same place, and the instances would not be independent.
            alive.append(self._open_pair(request, plan, candidate_first=instance % 2 == 1))
            del alive[:-1]
            first = sum(len(block.baseline) * block.repeats for block in blocks)
            clock = _CLOCKS[request.get("clock", "wall")]
            if "answers" in request and not blocks:
                found = self._answers(*alive[0], request["answers"], clock)
            blocks.append(self._time_block(*alive[0], plan, clock, (started, within_s), instance + 1, first, traffic))
            elapsed = time.perf_counter() - started
            if is_enough(blocks, plan, elapsed) or is_last_block(elapsed, len(blocks), within_s):
                break
        return {"blocks": [[block.baseline, block.candidate, block.repeats] for block in blocks], **found}

    def _answers(self, baseline: Runner, candidate: Runner, request: Message, clock: Clock) -> Message:
        """Compare the outputs of two open models on the inputs of the request."""
        feeds = feeds_of(candidate.session, request["feeds"])
        self._enter("baseline: run")
        before = baseline.answers(feeds, clock)
        self._enter("candidate: run")
        after = candidate.answers(feeds, clock)
        specs = [FeedSpec.from_json(spec) for spec in request["feeds"]]
        found, constant = compare_answers(specs, before, after, (request.get("rtol"), request.get("atol")))
        return {"findings": [asdict(finding) for finding in found], "constant": constant}

    def _open_pair(self, request: Message, plan: Plan, *, candidate_first: bool) -> tuple[Runner, Runner]:
        # In turn, so that neither side always gets the memory that the other left, nor the same copy of the inputs.
        if candidate_first:
            candidate = self._open_candidate(request, copy=0)
            return self._open_baseline(request, keep=False, copy=1), candidate
        baseline = self._open_baseline(request, keep=plan.instances == 1, copy=0)
        return baseline, self._open_candidate(request, copy=1)

    def _open_baseline(self, request: Message, *, keep: bool, copy: int) -> Runner:
        self._enter("baseline: open")
        side, feeds = request["baseline"], request["feeds"]

        def made(inputs: Sequence[ModelInput], accepts: Accepts) -> Rotation:
            return self._rotations.of(inputs, recipes_from_json(feeds), accepts)[copy]

        if not keep:
            return Runner(side["path"], Deployment.from_request(side["deployment"]), made)
        changed = os.stat(side["path"]).st_mtime_ns
        known = (side, feeds, changed)
        if self._kept is None or self._kept[0] != known or self._kept[1].rotation is not self._rotations.last(copy):
            self._kept = None
            runner = Runner(side["path"], Deployment.from_request(side["deployment"]), made)
            self._kept = (known, runner)
        return self._kept[1]

    def _open_candidate(self, request: Message, *, copy: int) -> Runner:
        self._enter("candidate: open")
        side = request["candidate"]
        _inject_fault(side["path"])
        return Runner(side["path"], Deployment.from_request(side["deployment"]), lambda *_: self._rotations.last(copy))

    def _time_block(
        self, baseline: Runner, candidate: Runner, plan: Plan, clock: Clock, span: tuple[float, float], block: int,
        first: int, traffic: int,
    ) -> Block:  # fmt: skip
        """Time the block of number `block`, from 1 on, with the inputs from number `first` on, for a measurement that
        began at a moment of `time.perf_counter` and must end within so many seconds (`span`); `traffic` bytes are read
        between two runs."""
        self._enter("baseline: run")
        baseline_s = baseline.warm_up(plan.warmup, clock, first)
        self._enter("candidate: run", expect_s=plan.warmup * baseline_s)
        candidate_s = candidate.warm_up(plan.warmup, clock, first)
        between = self._traffic.between(
            traffic, [value for value in baseline.feeds.values() if isinstance(value, np.ndarray)]
        )
        # What is read between runs would take the most of several short ones.
        repeats = 1 if between is not None else repeats_for(min(baseline_s, candidate_s))
        pair_s = repeats * (baseline_s + candidate_s) + (0.0 if between is None else 2.0 * warm_up(between, 1))
        spent_s = time.perf_counter() - span[0]
        left_s = span[1] - spent_s
        budget_s = block_budget(plan, left_s, pair_s, spent_s, block)
        self._enter("candidate: time", expect_s=max(budget_s + plan.min_pairs * pair_s, plan.patience_s))

        def turn_to(number: int) -> None:
            baseline.turn_to(first + number)
            candidate.turn_to(first + number)

        return time_block(baseline.run, candidate.run, plan, repeats, budget_s, clock, turn_to, between, left_s)

    def _time(self, request: Message) -> Message:
        plan = Plan.from_json(request["plan"])
        self._enter("candidate: open")
        side, recipes = request["candidate"], recipes_from_json(request["feeds"])
        _inject_fault(side["path"])
        runner = Runner(side["path"], Deployment.from_request(side["deployment"]), recipes)
        self._enter("candidate: run")
        run_s = runner.warm_up(plan.warmup)
        repeats = repeats_for(run_s)
        self._enter("candidate: time", expect_s=plan.budget_s + plan.min_pairs * repeats * run_s)
        clock = _CLOCKS[request.get("clock", "wall")]
        return {"samples": time_alone(runner.run, plan, repeats, clock, runner.turn_to), "repeats": repeats}

    def _optimizers(self, request: Message) -> Message:
        self._enter("candidate: open")
        deployment = Deployment.from_request(request["candidate"]["deployment"])
        found = runtime_of(deployment.provider).passes(request["candidate"]["path"], deployment)
        return {"active": sorted(found.active), "registered": sorted(found.registered)}

    def _optimised(self, request: Message) -> Message:
        self._enter("candidate: open")
        deployment = Deployment.from_request(request["candidate"]["deployment"])
        runtime_of(deployment.provider).write_optimised(request["candidate"]["path"], deployment, request["written"])
        return {}

    def _profile(self, request: Message) -> Message:
        self._enter("candidate: open")
        side, feeds = request["candidate"], recipes_from_json(request["feeds"])
        deployment, budget_s = Deployment.from_request(side["deployment"]), float(request["budget_s"])
        found = profile(
            side["path"], deployment, feeds, request["folder"], budget_s, lambda: self._enter("candidate: run"),
            request.get("nodes", 1),
        )  # fmt: skip
        return {"kernels": found}

    def _probe_cuda(self, request: Message) -> Message:
        """Multiply two matrices on the CUDA device and check the product."""
        self._enter("candidate: open")
        runner = Runner(request["path"], Deployment("cuda"), FeedSpec())
        left, right = (runner.feeds[name] for name in ("a", "b"))
        (product,) = runner.session.run(None, runner.feeds)
        # Loose: CUDA multiplies in TF32 where the device has it.
        if not np.allclose(product, left @ right, rtol=0.05, atol=0.1):
            raise RuntimeError("the CUDA device multiplied two small matrices wrongly")
        return {}


def _status_of(error: Exception) -> str:
    return "oom" if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)) else "error"


def _message_of(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text}"[:_MESSAGE_LENGTH]


def _inject_fault(path: str) -> None:
    kind, _, text = os.environ.get(FAULT_VARIABLE, "").partition(":")
    if not text or text not in os.path.basename(path):
        return
    if kind == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    while kind == "hang":
        time.sleep(1)


def _limit_memory(megabytes: int) -> None:
    if sys.platform == "win32":
        raise SystemExit("memory_limit_mb needs a POSIX system")
    import resource

    limit = megabytes << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _channel() -> tuple[BinaryIO, BinaryIO]:
    """Return the channels of requests and replies, on copies of stdin and stdout.

    What native code prints to stdout goes to stderr.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return requests, replies


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Runs models for a latency meter; not for use by people.")
    parser.add_argument("--parent", type=int, required=True, help="process whose end ends this one")
    parser.add_argument("--memory-limit-mb", type=int, help="limit of the address space")
    options = parser.parse_args(arguments)
    requests, replies = _channel()
    follow(options.parent)
    if options.memory_limit_mb is not None:
        _limit_memory(options.memory_limit_mb)
    with suppress(BrokenPipeError):  # the parent is gone and with it whoever wanted the reply
        Worker(requests, replies).serve()
