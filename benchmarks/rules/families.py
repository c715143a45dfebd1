"""Measure families of rules on single layers: `python -m benchmarks.rules.families [--family F] [--json]`.

Layers (of convolutions two in a row, so that what a form needs between them counts) are run by a runtime as they are
and rewritten, in turn, on one thread. Times are CPU seconds of this process, which other processes on the machine
disturb less than the wall clock. With --write, results/rules/families.json and the tables in
benchmarks/layers-zen4.md are brought up to date.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from benchmarks import RESULTS
from benchmarks.rules import transformer_layers
from graph_rewrite import Graph, Rewriter, save
from graph_rewrite.latency.device import device_name
from graph_rewrite.latency.provider import CpuProvider
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.rules import registered_rules
from graph_rewrite.rules.layout.channel_padding import PadConvChannels
from graph_rewrite.runtime import Block, Deployment, FeedSpec, Plan, Runner, estimate, repeats_for, time_block
from graph_rewrite.system.atomic_files import replace_file

FILE = RESULTS / "rules" / "families.json"
PAGE = Path(__file__).parents[1] / "layers-zen4.md"
MARK = "<!-- tables: written by python -m benchmarks.rules.families --write -->"
FEEDS = FeedSpec(0, rotated=())


@dataclass(frozen=True)
class Arguments:
    """Measure families of rules on single layers."""

    family: str = ""
    """One of winograd, convolution_nd, dilation, channel_padding, attention, feed_forward, residual, rows, strassen,
    embedding and tiling; all by default."""
    instances: int = 3
    """Pairs of sessions per row: sessions differ by where their memory lies."""
    budget: float = 1.5
    """CPU seconds per pair of sessions."""
    provider: CpuProvider = "cpu"
    """ONNX Runtime on the CPU, or OpenVINO, in which `--write` writes nothing."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print a JSON array, an object per row, and nothing else."""
    write: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write the results file and the tables of the page; rows of other families stay."""


@dataclass(frozen=True)
class LayerForm:
    """Form of a layer: sets of rules by name, each applied at all its sites before the next.

    With `once`, each rule is applied at one site.
    """

    name: str
    passes: tuple[tuple[str, ...], ...]
    once: bool = False


@dataclass(frozen=True)
class LayerRow:
    """Figures of one form: the speed-up of the layers with its 95% interval.

    `error` is the largest difference to the original in ONNX Runtime, relative to the output's largest magnitude.
    """

    family: str
    shape: str
    form: str
    direct_ms: float
    speedup: float
    low: float
    high: float
    error: float
    operators: int


CANCEL = ("ComposeTransposes", "DropTranspose", "ComposeReshapes", "DropReshape")
WINOGRAD = tuple(
    LayerForm(name, ((f"Winograd{name}Relu",),))
    for name in ("Rows2", "Rows4", "Columns2", "Columns4", "2x2", "4x2", "4x4")
)


def _after(name: str, *passes: tuple[str, ...]) -> tuple[LayerForm, ...]:
    """Return a form, and the same followed by Winograd's algorithms for the plain convolutions that it leads to."""
    spatial = tuple(
        LayerForm(f"{name}, then {form}", (*passes, (f"Winograd{form}", f"Winograd{form}Relu")))
        for form in ("Rows4", "4x4")
    )
    return (LayerForm(name, passes), *spatial)


CLIPS = (
    LayerForm("sum of taps", (("Conv3dReluAsSum",), CANCEL)),
    LayerForm("stack of taps", (("Conv3dReluAsStack",), CANCEL)),
    *_after("F(2) along time", ("TemporalWinograd2Relu",), CANCEL)[:2],
    *_after("F(4) along time", ("TemporalWinograd4Relu",), CANCEL)[:2],
)  # fmt: skip
DILATED = _after("space to batch", ("DilatedConvReluAsBatch",), ("BatchOfSpace",))
STRIDED = (LayerForm("space to depth", (("StridedConvAsDepth",),)),)
PADDED = (LayerForm("padded", (("PadConvChannels",), PadConvChannels.carried_by)),)


def layers(channels: int, sizes: Sequence[int], kernel: Sequence[int], more: str = "") -> Graph:
    """Return two layers Relu(Conv(x, w, b)) that keep the size of an image or clip [1, channels, *sizes]."""
    rng, pads = np.random.default_rng(0), [k // 2 for k in kernel] * 2
    scale = (2.0 / (channels * np.prod(kernel))) ** 0.5
    given: dict[str, Any] = {}
    for i in range(2):
        given[f"w{i}"] = scale * rng.standard_normal((channels, channels, *kernel))
        given[f"b{i}"] = 0.1 * rng.standard_normal(channels)
    attrs = more or f"pads={pads}"
    image = ",".join(map(str, (1, channels, *sizes)))
    text = f"a = Conv<{attrs}>(x, w0, b0)  r = Relu(a)  c = Conv<{attrs}>(r, w1, b1)  y = Relu(c)"
    return model(f"(float[{image}] x) => (y) {{ {text} }}", **given)


def stem(size: int) -> Graph:
    """Return the first convolution of a ResNet: 7x7, stride 2, on 3 channels."""
    w = np.random.default_rng(0).standard_normal((64, 3, 7, 7))
    text = "y = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w)"
    return model(f"(float[1,3,{size},{size}] x) => (y) {{ {text} }}", w=w)


def pooled(channels: int, size: int) -> Graph:
    """Return operators of a NASNet cell over channels that fill no block: convolutions, a depthwise one, a pool."""
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {f"w{i}": 0.1 * rng.standard_normal((channels, channels, 1, 1)) for i in range(2)}
    text = (
        "a = Conv(x, w0)  r = Relu(a)  p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(r)"
        f"  d = Conv<group={channels}, pads=[1,1,1,1]>(r, v)  s = Add(p, d)  y = Conv(s, w1)"
    )
    given["v"] = 0.1 * rng.standard_normal((channels, 1, 3, 3))
    return model(f"(float[1,{channels},{size},{size}] x) => (y) {{ {text} }}", **given)


Case = tuple[str, Graph, tuple[LayerForm, ...]]
"""Shape in words, graph, and forms."""


def plain() -> Iterator[Case]:
    """Yield convolutions of images."""
    for c, n in ((64, 56), (128, 28), (256, 14), (256, 56), (512, 28), (512, 14), (512, 7)):
        yield f"{c} @ {n}x{n}, 3x3", layers(c, (n, n), (3, 3)), WINOGRAD
    for c, n, kernel in ((192, 17, (1, 7)), (192, 17, (7, 1)), (64, 35, (5, 5))):
        yield f"{c} @ {n}x{n}, {kernel[0]}x{kernel[1]}", layers(c, (n, n), kernel), WINOGRAD


def clips() -> Iterator[Case]:
    """Yield convolutions of clips."""
    for c, t, n in ((64, 16, 56), (128, 8, 28), (256, 4, 14)):
        yield f"{c} @ {t}x{n}x{n}, 3x3x3", layers(c, (t, n, n), (3, 3, 3)), CLIPS


def spread() -> Iterator[Case]:
    """Yield convolutions with dilations or strides."""
    for c, n in ((128, 32), (256, 28), (512, 28)):
        graph = layers(c, (n, n), (3, 3), "pads=[2,2,2,2], dilations=[2,2]")
        yield f"{c} @ {n}x{n}, 3x3, dilation 2", graph, DILATED
    yield "3 @ 224x224, 7x7, stride 2", stem(224), STRIDED


def unfilled() -> Iterator[Case]:
    """Yield layers with channels that fill no block."""
    for c, n in ((168, 42), (84, 42), (168, 21)):
        yield f"{c} @ {n}x{n}, pool and depthwise", pooled(c, n), PADDED


def _of_transformers(family: str) -> Iterator[Case]:
    for shape, graph, forms in transformer_layers.CASES[family]():
        yield shape, graph, tuple(LayerForm(name, passes, once=family == "tiling") for name, passes in forms)


CASES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "winograd": plain, "convolution_nd": clips, "dilation": spread, "channel_padding": unfilled,
    **{family: partial(_of_transformers, family) for family in transformer_layers.CASES},
}  # fmt: skip


def rewritten(graph: Graph, form: LayerForm) -> Graph:
    """Return the graph after the passes of a form, each to its end; the graph itself where the first has no site."""
    known = {rule.name: rule for rule in registered_rules()}
    for number, names in enumerate(form.passes):
        rewriter = Rewriter([known[name] for name in names], granularity="site", deployment=False)
        before = graph
        while candidates := rewriter.candidates(graph):
            graph = candidates[0].apply()
            if form.once:
                break
        if number == 0 and graph is before:
            return graph
    return graph


def compare(paths: tuple[str, str], arguments: Arguments, feeds: FeedSpec = FEEDS) -> tuple[list[Block], float]:
    """Return blocks of times of two models, and the largest relative difference of their outputs."""
    deployment, blocks, error = Deployment(arguments.provider, 1), list[Block](), 0.0
    plan = Plan(min_pairs=5, max_pairs=50)
    for _ in range(arguments.instances):
        runners = [Runner(path, deployment, feeds) for path in paths]
        (expected,), (found,) = (runner.session.run(None, runner.feeds) for runner in runners)
        error = max(error, float(np.abs(found - expected).max() / np.abs(expected).max()))
        taken = min(runner.warm_up(2) for runner in runners)
        first, second = (runner.run for runner in runners)
        blocks.append(time_block(first, second, plan, repeats_for(taken), arguments.budget, time.process_time))
    return blocks, error


def rows(arguments: Arguments) -> Iterator[LayerRow]:
    """Measure all forms of all cases."""
    wanted = [(f, case) for f in CASES if arguments.family in ("", f) for case in CASES[f]()]
    for family, (shape, graph, forms) in wanted:
        for form in forms:
            other = rewritten(graph, form)
            if other is graph:
                continue
            with tempfile.TemporaryDirectory() as folder:
                paths = [str(save(g, Path(folder, f"{i}.onnx"))) for i, g in enumerate((graph, other))]
                # In a model the layer before has just written the activations, which stay; token ids change.
                feeds = FeedSpec(input_ranges=index_ranges(graph), rotated=tuple(index_ranges(graph)))
                blocks, error = compare((paths[0], paths[1]), arguments, feeds)
            found = estimate(blocks)
            direct = 1e3 * float(np.median([seconds for block in blocks for seconds in block.baseline]))
            yield LayerRow(
                family, shape, form.name, round(direct, 3), round(found.speedup, 3), round(found.low, 3),
                round(found.high, 3), float(f"{error:.1e}"), len(other.nodes),
            )  # fmt: skip


def write(found: Sequence[LayerRow], complete: bool = True) -> None:
    """Write results and tables to their files, which are replaced as a whole.

    Rows of families that were not measured stay, and, while a run is not `complete`, those of forms not measured yet.
    """
    held = json.loads(FILE.read_text("utf-8"))["rows"] if FILE.exists() else []
    measured = {row.family if complete else (row.family, row.shape, row.form) for row in found}
    known = [LayerRow(**entry) for entry in held]
    kept = [r for r in known if (r.family if complete else (r.family, r.shape, r.form)) not in measured]
    together = sorted((*kept, *found), key=lambda row: row.family)
    device = device_name("cpu")
    content = {"device": device, "threads": 1, "rows": [asdict(row) for row in together]}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    replace_file(FILE, json.dumps(content, indent=1) + "\n")
    text = PAGE.read_text("utf-8")
    replace_file(PAGE, text[: text.index(MARK)] + f"{MARK}\n\nMeasured on {device}, one thread.\n" + tables(together))


def tables(found: Sequence[LayerRow]) -> str:
    """Return a Markdown table per family."""
    lines: list[str] = []
    for family in dict.fromkeys(row.family for row in found):
        lines += ["", f"### {family}", "", "| layers | form | direct | speed-up | 95% | error | operators |"]
        lines.append("|---|---|---|---|---|---|---|")
        for row in (row for row in found if row.family == family):
            lines.append(
                f"| {row.shape} | {row.form} | {row.direct_ms:.2f} ms | {row.speedup:.2f} | {row.low:.2f} to"
                f" {row.high:.2f} | {row.error:.0e} | {row.operators} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, and write where asked to."""
    arguments = tyro.cli(Arguments)
    if arguments.family not in ("", *CASES):
        sys.exit(f"there is no family {arguments.family!r}; there are {', '.join(CASES)}")
    if arguments.write and arguments.provider != "cpu":
        sys.exit("--write: the page has tables of ONNX Runtime alone; leave --write or --provider out")
    found = []
    for row in rows(arguments):
        found.append(row)
        if not arguments.json:
            print(
                f"{row.family:16} {row.shape:32} {row.form:28} {row.direct_ms:8.2f} ms  x{row.speedup:.2f} "
                f"({row.low:.2f} to {row.high:.2f})  error {row.error:.0e}  {row.operators} operators", flush=True,
            )  # fmt: skip
        if arguments.write:
            write(found, complete=False)
    if arguments.json:
        print(json.dumps([asdict(row) for row in found], indent=1))
    if arguments.write:
        write(found)


if __name__ == "__main__":
    main()
