"""Models whose loops and branches hold what rules rewrite. `a` and `b` are weights of the outer graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tests.graph_rewrite.sample_models import parsed, weights

_TURNS = "int64 n = {3}, bool go = {1}, float half = {0.5}"

TEXTS: Mapping[str, str] = {
    "a chain within Loop": f"""(float[4,4] x) => (float[4,4] last, float[3,4,4] every) <{_TURNS}> {{
        last, every = Loop(n, go, x) <
            body = turn (int64 i, bool on, float[4,4] acc) => (bool out, float[4,4] next, float[4,4] row) {{
                out = Identity(on)  t = MatMul(acc, a)  u = Mul(t, half)  next = Tanh(u)
                v = Transpose<perm = [1, 0]>(next)  w = Transpose<perm = [1, 0]>(v)  row = Exp(w) }}> }}""",
    "a chain within Scan": """(float[4] x, float[3,4] z) => (float[4] last, float[3,4] every) <float half = {0.5}> {
        last, every = Scan(x, z) <num_scan_inputs = 1,
            body = turn (float[4] state, float[4] e) => (float[4] next, float[4] row) {
                s = Relu(e)  r = Relu(s)  t = MatMul(r, a)  u = Mul(t, half)  next = Sub(state, u)
                row = Exp(next) }> }""",
    "chains within If": """(bool c, float[4,4] x) => (float[4,4] y) <float half = {0.5}> {
        y = If(c) <
            then_branch = p () => (float[4,4] u) {
                s = Transpose<perm = [1, 0]>(x)  r = Transpose<perm = [1, 0]>(s)  t = MatMul(r, a)  u = Mul(t, half) },
            else_branch = q () => (float[4,4] v) { k = Relu(x)  l = Relu(k)  v = MatMul(l, b) }> }""",
    "a chain within Loop within Loop": f"""(float[4,4] x) => (float[4,4] y) <{_TURNS}> {{
        y = Loop(n, go, x) <
            body = turn (int64 i, bool on, float[4,4] acc) => (bool out, float[4,4] next) {{
                out = Identity(on)
                inner = Loop(n, go, acc) <
                    body = turn2 (int64 j, bool on2, float[4,4] state) => (bool out2, float[4,4] then) {{
                        out2 = Identity(on2)  t = MatMul(state, a)  u = Mul(t, half)  then = Tanh(u) }}>
                k = Relu(inner)  l = Relu(k)  next = Sub(l, x) }}> }}""",
    "a chain within If within Scan": """(bool c, float[4] x, float[3,4] z) => (float[4] y, float[3,4] every) {
        y, every = Scan(x, z) <num_scan_inputs = 1,
            body = turn (float[4] state, float[4] e) => (float[4] next, float[4] row) {
                row = If(c) <
                    then_branch = p () => (float[4] u) { k = Relu(e)  l = Relu(k)  u = MatMul(l, a) },
                    else_branch = q () => (float[4] v) { v = Sub(e, state) }>
                next = Add(state, e) }> }""",
    "a value that grows within Loop": f"""(float[1,4] x) => (float[m,4] y) <{_TURNS}> {{
        y = Loop(n, go, x) <
            body = turn (int64 i, bool on, float[k,4] acc) => (bool out, float[l,4] next) {{
                out = Identity(on)  p = Relu(acc)  q = Relu(p)
                s = Relu(x)  r = Relu(s)  t = MatMul(r, a)  next = Concat<axis = 0>(q, t) }}> }}""",
    "a branch of a symbolic batch": """(bool c, float[N,4] x) => (float[N,4] y) <float half = {0.5}> {
        y = If(c) <
            then_branch = p () => (float[N,4] u) { s = Relu(x)  r = Relu(s)  t = MatMul(r, a)  u = Mul(t, half) },
            else_branch = q () => (float[N,4] v) { v = MatMul(x, b) }> }""",
}  # fmt: skip


def body_model(name: str) -> onnx.ModelProto:
    """Return the model of this name."""
    text = TEXTS[name]
    return parsed(text, *(weights(w, 4, 4, seed=len(w) + ord(w)) for w in "ab" if f", {w})" in text))
