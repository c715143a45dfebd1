"""Programs that reproduce every figure in README and docs: `python -m benchmarks.NAME --help` explains one.

| package | content |
|---|---|
| `results`, with `protocol` and `peers` | the table: every agent and other tools on every model, judged side by side |
| `time_limits` | `rewritegym optimize` as users run it |
| `env_speed`, `soak` | speed of the environment, and growth of its process |
| `figures` | tables and plots of results files, and figures that pages quote |
| `headroom` | the distance of models, results and peers from the machine's limit |
| `papers` | the tables of the papers beside ours |
| `learning` | models and policies of windows, scored on architectures held out; the experience that they learn from |
| `rules` | gains of rules: on single layers, as lists on whole models, in the blocked layout |
| `latency` | what meters resolve, and the cost model against the clock |
| `egraphs` | growth, construction and extraction of e-graphs |
| `recordings` | recorded results: replayed, and written as known results |

Results lie in `benchmarks/results/`: tables below the machine's name, the others below their package's.
"""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
"""The folder of all results files."""
