"""Random walks of rewrites inside random bodies: the model computes the same after any of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter, load
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.rewriting.body_sites import BodySite
from tests.graph_rewrite.rewriting.test_body_sites import assert_equal, assert_no_name_is_taken_twice
from tests.graph_rewrite.sample_models import parsed, weights

REWRITER = Rewriter(deployment=False)
STEPS = (
    "Relu({})", "Neg({})", "Tanh({})", "Identity({})", "Transpose<perm = [1, 0]>({})", "MatMul({}, a)",
    "MatMul({}, own)", "Mul({}, half)", "Add({}, x)", "Add({}, b)", "Sub({0}, {0})", "Sub({}, first)",
)  # fmt: skip
HOLDERS = {
    "Loop": (
        "y = Loop(n, go, x)",
        "(int64 i, bool on, float[4,4] first) => (bool out, float[4,4] last)",
        "out = Not(on)",
    ),
    "Scan": ("y, z = Scan(x, many)", "(float[4,4] state, float[4,4] first) => (float[4,4] last, float[4,4] row)", ""),
    "If": ("y = If(c)", "() => (float[4,4] last)", "first = Exp(x)"),
}


def model_of(holder: str, steps: list[str], nested: bool) -> str:
    call, interface, extra = HOLDERS[holder]
    names = ["first", *(f"v{k}" for k in range(1, len(steps))), "last"]
    chain = "  ".join(f"{names[k + 1]} = {step.format(names[k])}" for k, step in enumerate(steps))
    if nested:
        chain = (
            chain.replace("last =", "inner =")
            + """  last = If(c) <
            then_branch = p () => (float[4,4] u) { t = Relu(inner)  s = Relu(t)  u = MatMul(s, a) },
            else_branch = q () => (float[4,4] w) { w = Mul(inner, half) }>"""
        )
    row = "row = Relu(first)" if holder == "Scan" else ""
    own = ", ".join(str(k / 8 - 1) for k in range(16))
    body = f"turn {interface} <float[4,4] own = {{{own}}}> {{ {extra}  {chain}  {row} }}"
    held = {
        "If": f"then_branch = {body}, else_branch = other () => (float[4,4] e) {{ e = Neg(x) }}",
        "Scan": f"num_scan_inputs = 1, body = {body}",
    }.get(holder, f"body = {body}")
    more = ", float[2,4,4] z" if holder == "Scan" else ""
    constants = "int64 n = {2}, bool go = {1}, float half = {0.5}"
    return f"(bool c, float[4,4] x, float[2,4,4] many) => (float[4,4] y{more}) <{constants}> {{ {call} <{held}> }}"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(HOLDERS)), st.lists(st.sampled_from(STEPS), min_size=2, max_size=6), st.booleans(), st.data()
)
def test_walks(holder: str, steps: list[str], nested: bool, data: st.DataObject) -> None:
    model = parsed(model_of(holder, steps, nested), weights("a", 4, 4), weights("b", 4, 4, seed=1))
    graph, taken = normalise(load(model))[0], list[str]()
    for _ in range(4):
        offered = [c for c in REWRITER.candidates(graph) if isinstance(c.site, BodySite)]
        if not offered:
            break
        candidate = offered[data.draw(st.integers(0, len(offered) - 1))]
        taken.append(candidate.description)
        graph = candidate.apply()
    saved = to_proto(graph)
    assert_no_name_is_taken_twice(saved)
    assert load(saved).hash == graph.hash
    assert_equal(graph, model, f"{steps}: {taken}")
