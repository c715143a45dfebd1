"""The style of a report: light and dark, for phones and for paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1b1f24; --soft: #5b6470; --line: #dde1e6; --paper: #ffffff; --panel: #f5f7f9; --accent: #0b6bcb;
  --good: #17784a; --bad: #b3261e; --before: #a9b4c0; --product: #d7e6fb; --move: #e4e0f6; --point: #fbe3d3;
  --other: #e6eaee; --value: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e9ed; --soft: #9aa5b1; --line: #333b44; --paper: #14181d; --panel: #1d232a; --accent: #6db3ff;
    --good: #5fd39a; --bad: #ff8a80; --before: #5a6673; --product: #1f3b5c; --move: #38315e; --point: #56341f;
    --other: #2b333c; --value: #14181d;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main, footer { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding: 2rem 0 0.5rem; }
h1 { font-size: clamp(1.9rem, 6vw, 3rem); line-height: 1.1; margin: 0.2rem 0; letter-spacing: -0.02em; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 2.75rem 0 0.75rem; letter-spacing: -0.01em; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 0.25rem; }
p { margin: 0.5rem 0; max-width: 44rem; overflow-wrap: anywhere; }
code, pre, data { font-variant-numeric: tabular-nums; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
  font-size: 0.875em; }
pre { background: var(--panel); border-radius: 8px; padding: 0.75rem 1rem; overflow-x: auto; margin: 0.5rem 0; }
td code { overflow-wrap: break-word; } .where code { overflow-wrap: anywhere; }
.equation { white-space: pre-wrap; overflow-wrap: anywhere; }
.deployment { color: var(--soft); font-size: 0.9rem; max-width: none; margin: 0 0 1.25rem; }
.model { font-weight: 600; margin: 0; }
.ci, .note, figcaption, .where { color: var(--soft); font-size: 0.9rem; }
.good { color: var(--good); } .warning { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0; }
caption { text-align: left; color: var(--soft); font-size: 0.9rem; padding: 0.75rem 0 0.25rem; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 1rem 0.4rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 500; } thead th { color: var(--soft); font-size: 0.85rem; }
td.num, th.num { text-align: right; white-space: nowrap; padding-right: 0; padding-left: 1rem;
  font-variant-numeric: tabular-nums; }
td .ci { display: block; white-space: nowrap; }
.rewrites { list-style: none; counter-reset: step; padding: 0; margin: 1rem 0; }
.rewrites > li { counter-increment: step; border-top: 1px solid var(--line); padding: 0.25rem 0 1rem; }
.rewrites > li > h3::before { content: counter(step) ". "; color: var(--soft); font-weight: 400; }
.rewrites h3 { overflow-wrap: anywhere; margin-top: 0.9rem; }
.facts { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; align-items: center; }
.saved { color: var(--good); display: inline-flex; gap: 0.5rem; align-items: center; }
.saved.loss, .saved.unknown { color: var(--soft); }
.bar { fill: var(--good); } .bar.loss { fill: var(--soft); } .bar-before { fill: var(--before); }
.bar-after { fill: var(--accent); }
.whisker { stroke: var(--ink); stroke-width: 1.6; fill: none; }
summary { cursor: pointer; color: var(--accent); font-size: 0.9rem; padding: 0.35rem 0; }
.sides { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
.sides figure { background: var(--panel); border-radius: 8px; padding: 0.5rem 0.75rem; margin: 0; max-width: 100%; }
figure { margin: 1rem 0; }
.graph { display: block; max-width: 100%; height: auto; }
.graph text { fill: var(--ink); } .graph .name { font-size: 13px; font-weight: 600; }
.graph .small { font-size: 10px; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.graph .edge { fill: none; stroke: var(--soft); stroke-width: 1.2; }
.op { stroke: var(--line); } .op-product { fill: var(--product); } .op-move { fill: var(--move); }
.op-point { fill: var(--point); } .op-other { fill: var(--other); }
.value { fill: var(--value); stroke: var(--before); }
.chart { width: 100%; max-width: 34rem; height: auto; display: block; margin: 0.75rem 0 0; }
.chart text { fill: var(--soft); font-size: 13px; }
.grid { stroke: var(--line); } .curve { fill: none; stroke: var(--accent); stroke-width: 2; }
.point { fill: var(--accent); }
@media (min-width: 48rem) { .sides { flex-wrap: nowrap; } .sides figure { min-width: 0; } }
@media (max-width: 30rem) {
  main, footer { padding: 0 1rem; }
  th, td { padding-right: 0.5rem; }
  td.num, th.num { padding-left: 0.5rem; }
}
footer { color: var(--soft); font-size: 0.85rem; padding: 3rem 1.25rem 2rem; }
@media print { details > * { display: revert; } .scroll { overflow: visible; } body { font-size: 11pt; } }
"""
