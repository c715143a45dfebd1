"""The tables of the papers, in the order of the page that shows them."""

from __future__ import annotations

from benchmarks.papers.costs import show_discrepancy, show_extraction
from benchmarks.papers.judged import interval, rules, seconds, show_breakdown, show_methods, shown_agents, speedup
from benchmarks.papers.table import PaperTable, read_published

_AS_PUBLISHED = "rerank=1,deployment=false"
_RESULTS = "benchmarks/results/papers"
_XRLFLOW = ("inception-v3", "squeezenet", "resnext50", "bert", "dalle", "transformer-transducer", "vit")
_AGAINST_TENSAT = ("bert", "inception-v3", "squeezenet", "resnext50")
_SHAPES = (
    *(f"bert?seq_len={length}" for length in (64, 256, 384)),
    *(f"dalle?seq_len={length}" for length in (128, 384)),
    *(f"inception-v3?image_size={size}" for size in (225, 331)),
)
_POLICIES = (
    "On bert and squeezenet `ppo` acted with policies that ship no more; on the others it acts with the universal "
    "policy."
)
_TASO = ("resnet50", "resnext50", "nasrnn", "nasnet-a", "bert")
_TASO_AGENTS = {"as published": f"taso:{_AS_PUBLISHED}", "`taso`": "taso"}
_EXTRACTIONS = {
    method: f"egraph-mcts:main={main},final={final},{_AS_PUBLISHED},in_flight=1"
    for method in ("tree/tree", "tree/ilp", "shared/shared", "shared/ilp", "ilp/ilp")
    for main, final in [method.split("/")]
}
_TENSAT = f"tensat:{_AS_PUBLISHED}"
_BEST = {"tensat": _TENSAT, "shared/ilp": _EXTRACTIONS["shared/ilp"], "ilp/ilp": _EXTRACTIONS["ilp/ilp"]}
_PACT_MODELS = tuple(dict.fromkeys(row["zoo"] for row in read_published("pact24")["table 2"]["rows"]))


def _results_command(
    models: tuple[str, ...], agents: tuple[str, ...], budget_s: int, seeds: int, out: str
) -> tuple[str, ...]:
    """Return the command that judges agents on models, without any other tool. A reader can run each in an hour or two
    on two cores."""
    named = [f"zoo://{model}" if "?" in model else model for model in models]
    return (
        "python", "-m", "benchmarks.results", "--models", *named, "--agents", *agents, "--peers",
        "--budget", str(budget_s), "--seeds", str(seeds), "--out", out,
    )  # fmt: skip


_MAIN_FILE, _SHAPES_FILE = "benchmarks/results/amd-epyc-25-17/cpu-t1.json", f"{_RESULTS}/xrlflow-shapes.json"
_PACT_FILE, _TASO_FILE = f"{_RESULTS}/pact24.json", f"{_RESULTS}/taso.json"
_MAIN_RUN = ("python", "-m", "benchmarks.results", "--models", *_XRLFLOW, "--out", _MAIN_FILE)
"""The part of `make results` with these models: what it judges is not searched and judged again."""
_SHAPES_RUN = _results_command(_SHAPES, ("ppo", "taso"), 60, 2, _SHAPES_FILE)
_PACT_RUN = _results_command(_PACT_MODELS, (_TENSAT, *_EXTRACTIONS.values()), 120, 1, _PACT_FILE)
_TASO_RUN = _results_command(_TASO, tuple(_TASO_AGENTS.values()), 120, 2, _TASO_FILE)
_PET_NETWORKS = ("resnet18", "csrnet", "inception-v3", "bert", "resnet3d18")
_PET_MODELS = tuple(f"{name}{batch}" for name in _PET_NETWORKS for batch in ("", "?batch=16"))
_PET_VARIANTS = {
    "exact rules": "exact", "mutants": "mutants", "both": "both", "both, recomputing alone": "recompute-only",
}  # fmt: skip
_LEARNED = {"`ppo`": "ppo", "`taso`": "taso"}
_HEAT_MAP = "`python -m benchmarks.figures` draws the heat map out of the same file."

TABLES: tuple[PaperTable, ...] = (
    PaperTable(
        "xrlflow-table-1", "xrlflow", "table 1", "The cost model against the clock", show_discrepancy,
        ("python", "-m", "benchmarks.latency.discrepancy", "--out", "benchmarks/results/latency/discrepancy"),
        "benchmarks/results/latency/discrepancy.json",
    ),
    PaperTable(
        "xrlflow-figure-4", "xrlflow", "figure 4", "Speed-ups of seven networks by reinforcement learning and by TASO",
        shown_agents("figure 4", _XRLFLOW, _LEARNED, ("", speedup)), _MAIN_RUN, _MAIN_FILE, _POLICIES,
    ),
    PaperTable(
        "xrlflow-figure-5", "xrlflow", "figure 5", "Rules applied",
        shown_agents("figure 5", _XRLFLOW, _LEARNED, ("", rules)), _MAIN_RUN, _MAIN_FILE, _HEAT_MAP,
    ),
    PaperTable(
        "xrlflow-figure-6", "xrlflow", "figure 6", "Optimisation time",
        shown_agents("figure 6", _XRLFLOW, _LEARNED, ("", seconds)), _MAIN_RUN, _MAIN_FILE,
        "A search ends with its budget at the latest, here 60 s for each agent.",
    ),
    PaperTable(
        "xrlflow-figure-7", "xrlflow", "figure 7", "Shapes that the policy has not seen",
        shown_agents("figure 7", _SHAPES, _LEARNED, ("", speedup)), _SHAPES_RUN, _SHAPES_FILE,
        "`ppo` acts with the universal policy, whose table has these models at some sizes: BERT at 64, 128 and 384"
        " tokens, DALL-E at 256, Inception-v3 at 299 and 160 pixels.",
    ),
    PaperTable(
        "xrlflow-figure-8", "xrlflow", "figure 8", "Comparison with TENSAT",
        shown_agents("figure 8", _AGAINST_TENSAT, {"`ppo`": "ppo", "`tensat`": "tensat"}, ("", speedup)),
        _MAIN_RUN, _MAIN_FILE, _POLICIES,
    ),
    PaperTable(
        "xrlflow-paper-settings", "xrlflow", "appendix A", "Training with the paper's hyper-parameters on BERT",
        lambda published, path: [published["appendix A"]["said"]],
        lacks="`python train.py --model bert --config paper --episodes 1000` trains with them and writes what its"
        " policy finds into a run folder. Nothing records such a run in a results file yet.",
    ),
    PaperTable(
        "pact24-table-1", "pact24", "table 1", "Estimates of extraction methods", show_extraction,
        ("python", "-m", "benchmarks.egraphs.extraction", "--out", "benchmarks/results/egraphs/extractors.json"),
        "benchmarks/results/egraphs/extractors.json",
        "Both are relative to the integer program's, which is exact. Without names the command leaves out NASNet-A and"
        " the larger transformers.",
    ),
    PaperTable(
        "pact24-figure-5", "pact24", "table 2", "Main and final extraction (figure 5)", show_methods(_EXTRACTIONS),
        _PACT_RUN, _PACT_FILE, "A search has 120 s here. `tree` is their default cost function, `shared` their own.",
    ),
    PaperTable(
        "pact24-table-2", "pact24", "table 2", "Tree search against TENSAT on 13 networks (figure 6)",
        show_breakdown(_BEST), _PACT_RUN, _PACT_FILE,
        "Theirs is the time saved; the speed-up that this means stands in brackets. They raise TENSAT's `k_multi` until"
        " the e-graph is full or saturated; ours has `k_multi` = 1.",
    ),
    PaperTable(
        "pact24-figure-7", "pact24", "figures 7, 8 and 10", "Rules applied",
        shown_agents("figures 7, 8 and 10", _PACT_MODELS, _BEST, ("", rules)), _PACT_RUN, _PACT_FILE, _HEAT_MAP,
    ),
    PaperTable(
        "taso-figure-8", "taso", "figure 8", "TASO's backtracking on its five networks",
        shown_agents(
            "figure 8", _TASO, _TASO_AGENTS, (": speed-up", speedup), (": search", seconds), (": rules", rules)
        ),
        _TASO_RUN, _TASO_FILE, "A search has 120 s here.",
    ),
    PaperTable(
        "pet-figure-13", "pet", "figure 13", "Exact rules, mutants, and both",
        shown_agents("figure 13", _PET_MODELS, _PET_VARIANTS, ("", interval)),
        ("python", "-m", "benchmarks.papers.pet_ablation"), f"{_RESULTS}/pet.json",
        "Every column is a search by `regional` of 180 s, one seed, which may also refuse optimisers of ONNX Runtime."
        " In the last column mutants may be repaired by computing wrong boxes again alone, as in the paper.",
    ),
)  # fmt: skip
