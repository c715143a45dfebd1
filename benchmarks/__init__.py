"""Programs that reproduce the figures in README and docs: `python -m benchmarks.NAME --help` tells the arguments.

| program | figures |
|---|---|
| `end_to_end` | speed-ups of one agent on the zoo |
| `report` | tables and plots out of runs and of `end_to_end` |
| `figures` | tables and plots of results files |
| `headroom` | distance of models, results and peers from the machine's limit |
| `papers` | the tables of the papers beside ours |
| `env_speed` | the environment's steps, without any latency measurement |
| `window_meter` | agreement of the window meter with whole models, and false positives of all meters |
| `families`, `blocked_layout`, `rule_lists` | gains of rules on layers, of the blocked layout, of lists of rules |
| `egraph`, `egraph_construction`, `egraph_extraction` | growth and memory of e-graphs, construction, extraction |
| `learning.algorithms` | scores of learning algorithms on the table of windows |
| `collect_experience` | none: it collects what windows cost, from variants of the zoo and generated networks |
| `discrepancy` | the sum of operators against the latency end to end |

`transformer_layers` holds layers for `families`. Results lie in `benchmarks/results/`.
"""
