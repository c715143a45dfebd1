"""Measure explicit operators of the blocked layout end to end: `python -m benchmarks.rules.blocked_layout [--write]`.

A network's convolutions are rewritten by the families of convolution rules, each with the form that is best at the most
similar shape of results/rules/families.json; then whole parts move into the blocked layout (`PartInBlockedLayout`). The
original with every optimisation of ONNX Runtime, the result in standard operators and the one in explicit operators are
compared in turn, pinned to a core, on one thread. No measurement of the network itself goes into the choice.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log2
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks import RESULTS
from benchmarks.rules import families
from benchmarks.rules.families import CANCEL, compare
from graph_rewrite import Graph, Rewriter, Rule, save
from graph_rewrite.latency.device import device_name
from graph_rewrite.operators.nchwc import DOMAIN, block_size
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rules import registered_rules
from graph_rewrite.runtime import estimate
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.task.models import open_model

FILE = RESULTS / "rules" / "blocked_layout.json"
LEAST_GAIN = 1.08
"""Least speed-up of a form on two layers alone for it to be taken."""
LARGEST_DISTANCE = 1.0
"""Largest distance of channels and of size from those of a measured shape, in powers of two."""
STRUCTURE = (
    ("DilatedConvAsBatch", "DilatedConvReluAsBatch"), ("BatchOfSpace",), ("TemporalWinograd4", "TemporalWinograd4Relu"),
    ("TemporalWinograd2", "TemporalWinograd2Relu"), ("Conv3dAsSum", "Conv3dReluAsSum"), CANCEL,
)  # fmt: skip
"""Rules that turn other convolutions into plain convolutions of images, in the order in which they are tried."""


@dataclass(frozen=True)
class Arguments:
    """Compare standard operators with explicit ones of the blocked layout."""

    models: tuple[str, ...] = ("resnet18", "vgg19", "resnet3d18", "csrnet")
    instances: int = 3
    """Pairs of sessions per comparison."""
    budget: float = 10.0
    """CPU seconds per pair of sessions."""
    core: int = 0
    """The core that runs are pinned to."""
    write: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write the results file; entries of other models stay."""


@dataclass(frozen=True)
class BlockedSpeedup:
    """Speed-ups of one model, each with its 95% interval; the error is relative to the output's largest magnitude."""

    model: str
    original_ms: float
    standard: tuple[float, float, float]
    """Standard operators over the original."""
    blocked: tuple[float, float, float]
    """Explicit operators of the blocked layout over the original."""
    blocked_over_standard: tuple[float, float, float]
    error: float
    operators: tuple[int, int, int]
    explicit: int
    """Number of operators of the blocked layout."""


def applied(graph: Graph, names: Sequence[str], wanted: Callable[[Candidate], bool] = lambda candidate: True) -> Graph:
    """Return the graph after the rules were applied at all wanted sites."""
    known: dict[str, Rule] = {rule.name: rule for rule in registered_rules()}
    rewriter = Rewriter([known[name] for name in names], granularity="site", deployment=False)
    while (found := next(filter(wanted, rewriter.candidates(graph)), None)) is not None:
        graph = found.apply()
    return graph


def best_forms() -> dict[tuple[int, int, str], str]:
    """Return the fastest form per channels, size and kernel of the measured layers; empty where none gains."""
    best: dict[tuple[int, int, str], tuple[float, str]] = {}
    for row in json.loads(families.FILE.read_text("utf-8"))["rows"]:
        place = re.fullmatch(r"(\d+) @ (\d+)x\d+, (\d+x\d+)", row["shape"])
        if row["family"] == "winograd" and place is not None:
            key = (int(place[1]), int(place[2]), place[3])
            best[key] = max(best.get(key, (LEAST_GAIN, "")), (row["speedup"], row["form"]))
    return {key: form for key, (_, form) in best.items()}


def takes_best(forms: dict[tuple[int, int, str], str]) -> Callable[[Candidate], bool]:
    """Tell whether a candidate rewrites a convolution into the form that is best at the most similar shape."""

    def wanted(candidate: Candidate) -> bool:
        match = candidate.site.match
        result = candidate.site.types[match.node("conv").outputs[0]]
        assert result is not None  # rules apply to values of known types alone
        filters, image = result.shape[1], result.shape[2]
        kernel = "x".join(map(str, match.refs[1].shape[2:]))
        apart = {k: (abs(log2(k[0] / filters)), abs(log2(k[1] / image))) for k in forms if k[2] == kernel}
        near = [key for key, distance in apart.items() if max(distance) <= LARGEST_DISTANCE]
        nearest = min(near, key=lambda key: sum(apart[key]), default=None)
        if nearest is None or not forms[nearest]:
            return False
        return candidate.rule.removesuffix("Relu") == f"Winograd{forms[nearest]}"

    return wanted


def rewritten(graph: Graph) -> tuple[Graph, Graph]:
    """Return the network in standard operators, and the same in explicit ones."""
    for step in STRUCTURE:
        graph = applied(graph, step)
    names = [rule.name for rule in registered_rules() if rule.family == "winograd"]
    standard = applied(graph, names, takes_best(best_forms()))
    return standard, applied(standard, ("PartInBlockedLayout",))


def entries(arguments: Arguments) -> Iterator[BlockedSpeedup]:
    """Measure the models one by one."""
    timing = families.Arguments(instances=arguments.instances, budget=arguments.budget)
    for name in arguments.models:
        original = open_model(name).graph
        graphs = (original, *rewritten(original))
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(save(graph, Path(folder, f"{i}.onnx"))) for i, graph in enumerate(graphs)]
            found: list[tuple[float, float, float]] = []
            errors, first = list[float](), 0.0
            for a, b in ((0, 1), (0, 2), (1, 2)):
                blocks, error = compare((paths[a], paths[b]), timing)
                result = estimate(blocks)
                found.append((round(result.speedup, 3), round(result.low, 3), round(result.high, 3)))
                errors.append(error)
                first = first or 1e3 * min(seconds for block in blocks for seconds in block.baseline)
        explicit = sum(node.domain == DOMAIN for node in graphs[2].nodes.values())
        sizes = (len(graphs[0].nodes), len(graphs[1].nodes), len(graphs[2].nodes))
        error = float(f"{max(errors[:2]):.1e}")
        yield BlockedSpeedup(name, round(first, 2), found[0], found[1], found[2], error, sizes, explicit)


def write(found: Sequence[BlockedSpeedup]) -> None:
    """Replace the results file as a whole; entries of models that were not measured stay."""
    held = json.loads(FILE.read_text("utf-8"))["models"] if FILE.exists() else []
    measured = {entry.model for entry in found}
    kept = [entry for entry in held if entry["model"] not in measured]
    content = {
        "device": device_name("cpu"), "block": block_size(), "threads": 1,
        "models": [*kept, *(asdict(entry) for entry in found)],
    }  # fmt: skip
    replace_file(FILE, json.dumps(content, indent=1) + "\n")


def main() -> None:
    """Measure, print, and write where asked to."""
    arguments = tyro.cli(Arguments)
    if not block_size():
        sys.exit("ONNX Runtime has no blocked layout on this CPU: there is nothing to measure")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.core})
    found = []
    for entry in entries(arguments):
        found.append(entry)
        columns = (
            f"{name} x{value[0]:.3f} ({value[1]:.3f} to {value[2]:.3f})"
            for name, value in (
                ("standard", entry.standard),
                ("explicit", entry.blocked),
                ("explicit over standard", entry.blocked_over_standard),
            )
        )
        print(
            f"{entry.model:12} {entry.original_ms:8.1f} ms  {'  '.join(columns)}  error {entry.error:.0e}", flush=True
        )
        if arguments.write:
            write(found)


if __name__ == "__main__":
    main()
