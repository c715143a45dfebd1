"""Time the environment's steps, without any latency measurement.

    python -m benchmarks.env_speed --model bert [--rules all] [--json]

step_ms_p50, step_ms_p95: one step (apply, enumerate, observe, mask) over random legal site and class actions;
scratch_ms: all candidates of the model by a fresh Rewriter; policy_ms: a forward pass of the policy on the observations
of those steps; extra_env_mb: resident memory of a further environment of the process after a few steps; depth_ratio:
apply + enumerate on 48 layers over the same on 12, both of a narrow model of that kind (null where a model has no
`layers`). Times are medians in milliseconds on one thread.
"""

from __future__ import annotations

import os

# Before NumPy and PyTorch are imported: they read it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from envs import GraphRewriteEnv
from envs.observation import Observation
from graph_rewrite import Graph, Rewriter, zoo
from graph_rewrite.latency import Effort, Latency, Measurable
from graph_rewrite.rules import rule_set

LIMITS = {
    "step_ms_p50": 10.0, "step_ms_p95": 30.0, "scratch_ms": 200.0, "policy_ms": 20.0, "extra_env_mb": 30.0,
    "depth_ratio": 1.5,
}  # fmt: skip
"""Upper limits of the figures on BERT-base."""

HORIZON = 40
SHALLOW, DEEP = 12, 48
NARROW = {"hidden": 64, "heads": 2, "vocab": 1000}
"""Settings that make deep models small where a model has them; they leave the graph's structure as it is."""


@dataclass(frozen=True)
class Arguments:
    """Time the environment's steps."""

    model: str = "bert"
    """A name of the zoo, zoo://NAME?PARAMETER=VALUE, or an ONNX file."""
    episodes: int = 5
    """Episodes of 40 steps that are timed."""
    seed: int = 0
    """Seed of the random actions."""
    rules: str = "default"
    """Rule sets, separated by commas: default, generated, taso, or all."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class Speed:
    """Figures of one model; None where a figure does not exist for it."""

    step_ms_p50: float
    step_ms_p95: float
    scratch_ms: float
    policy_ms: float
    extra_env_mb: float
    depth_ratio: float | None


class Unmeasured:
    """A meter that finds every graph as fast as the original, at once."""

    measurements = 0

    def measure(self, graph: Measurable, effort: Effort = "screen") -> Latency:
        return Latency(1.0, 1.0, (1.0, 1.0), 1, 1.0)

    def close(self) -> None:
        """Do nothing: there is no worker to end."""

    def __enter__(self) -> Unmeasured:
        return self

    def __exit__(self, *reason: object) -> None:
        return None


def measure(arguments: Arguments) -> Speed:
    """Take all figures."""
    rng = np.random.default_rng(arguments.seed)
    env = make_env(arguments.model, arguments.rules)
    for _ in rollout(env, rng):
        pass  # warms the memos of types and folded constants up, as any training does in its first episode
    samples = [sample for _ in range(arguments.episodes) for sample in rollout(env, rng)]
    times = [seconds * 1e3 for seconds, _, _ in samples]
    return Speed(
        step_ms_p50=statistics.median(times),
        step_ms_p95=float(np.percentile(times, 95)),
        scratch_ms=scratch_ms(env.problem.model.graph, arguments.rules),
        policy_ms=policy_ms(env, [(observation, mask) for _, observation, mask in samples[::10]]),
        extra_env_mb=extra_env_mb(arguments.model, arguments.rules, rng),
        depth_ratio=depth_ratio(arguments.model, arguments.rules, arguments.seed),
    )


def make_env(model: str, rules: str = "default") -> GraphRewriteEnv:
    """Return an environment with default limits that measures nothing."""
    return GraphRewriteEnv(
        model, meter=Unmeasured(), provider="cpu", rules=rules, horizon=HORIZON, feedback_every=HORIZON + 1,
        measure_last=False,
    )  # fmt: skip


def rollout(env: GraphRewriteEnv, rng: np.random.Generator) -> Iterator[tuple[float, Observation, Any]]:
    """Run an episode of random legal site and class actions; yield seconds, observation and mask of each step."""
    env.reset()
    for _ in range(HORIZON):
        mask = env.action_masks()
        legal = [k for k, candidate in enumerate(env.candidates) if mask[k] and candidate.kind != "deployment"]
        if not legal:
            return
        action = int(rng.choice(legal))
        start = time.perf_counter()
        observation, _, terminated, truncated, _ = env.step(action)
        mask = env.action_masks()
        yield time.perf_counter() - start, observation, mask
        if terminated or truncated:
            return


def scratch_ms(graph: Graph, rules: str = "default", repeats: int = 5) -> float:
    """Time enumeration by a Rewriter that has not seen the graph."""
    return 1e3 * statistics.median(timed(lambda: Rewriter(rule_set(rules)).candidates(graph)) for _ in range(repeats))


def policy_ms(env: GraphRewriteEnv, states: list[tuple[Observation, Any]]) -> float:
    """Time a forward pass of a policy with the configured architecture."""
    # Imported here so that memory and steps are measured without PyTorch.
    from agents.core.config import load_config
    from agents.ppo.policy import CandidatePolicy
    from agents.ppo.trainer import policy_arguments

    arguments = policy_arguments(load_config(env.problem.model.uri))
    policy = CandidatePolicy(env.observation_space, env.action_space, lambda _: 0.0, **arguments)
    policy.action_probabilities(*states[0])
    return 1e3 * statistics.median(timed(lambda s=state: policy.action_probabilities(*s)) for state in states)  # type: ignore[misc]


def extra_env_mb(model: str, rules: str, rng: np.random.Generator, count: int = 4, steps: int = 10) -> float:
    """Measure the resident memory of a further environment, some steps into an episode."""
    envs = []
    gc.collect()
    before = resident_mb()
    for _ in range(count):
        env = make_env(model, rules)
        for _, _ in zip(rollout(env, rng), range(steps), strict=False):
            pass
        envs.append(env)
    gc.collect()
    return max(0.0, resident_mb() - before) / count


def depth_ratio(model: str, rules: str, seed: int) -> float | None:
    """Time apply + enumerate of site actions on a deep model over the same on a shallow one."""
    name = zoo.name_in(model)
    if name not in zoo.names() or "layers" not in zoo.defaults(name):
        return None
    known = {key: value for key, value in NARROW.items() if key in zoo.defaults(name)}
    narrow = "&".join(f"{key}={value}" for key, value in known.items())
    uris = [f"zoo://{name}?layers={layers}&{narrow}" for layers in (SHALLOW, DEEP)]
    # In turn, so that both see the same state of the machine.
    pairs = np.array(list(zip(*(rewrite_seconds(uri, rules, seed) for uri in uris), strict=True)))
    shallow, deep = np.median(pairs, axis=0)
    return float(deep / shallow)


def rewrite_seconds(uri: str, rules: str, seed: int, episodes: int = 5, steps: int = 20) -> Iterator[float]:
    """Time apply + enumerate of random site actions, in seconds."""
    rng = np.random.default_rng(seed)
    rewriter = Rewriter(rule_set(rules))
    start = make_env(uri).problem.model.graph
    for episode in range(episodes + 1):
        graph = start
        for _ in range(steps):
            sites = [candidate for candidate in rewriter.candidates(graph) if candidate.kind == "site"]
            candidate = sites[int(rng.integers(len(sites)))]
            begin = time.perf_counter()
            graph = candidate.apply()
            rewriter.candidates(graph)
            if episode:  # the first one warms up
                yield time.perf_counter() - begin


def timed(action: Callable[[], object]) -> float:
    """Time a call, in seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def resident_mb() -> float:
    """Return this process's resident memory in MB (10**6 bytes), or its peak where the system gives no other."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def as_table(model: str, speed: Speed) -> Table:
    """Return a table of the figures and of their limits on BERT-base."""
    table = Table(title=f"Environment speed on {model}, one thread, nothing measured")
    for heading in ("figure", "found", "limit for bert"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, value in asdict(speed).items():
        table.add_row(name, "-" if value is None else f"{value:.2f}", f"{LIMITS[name]:g}")
    return table


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.env_speed")
    speed = measure(arguments)
    if arguments.json:
        figures = {name: None if value is None else round(value, 3) for name, value in asdict(speed).items()}
        print(json.dumps(figures))
    else:
        Console().print(as_table(arguments.model, speed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
