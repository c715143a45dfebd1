"""Mutants of whole graphs: subprograms, refusals, limits, and their listing."""

import gc
import json
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate import search
from graph_rewrite.mutate.equivalence import Disagreement, RandomTrials, prove
from graph_rewrite.mutate.generation.finish import Target
from graph_rewrite.mutate.generation.generator import Generator
from graph_rewrite.mutate.generation.instance import lifted, small_instance
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.listing import lines, to_json
from graph_rewrite.mutate.program import Subprogram, TensorProgram, program
from graph_rewrite.mutate.repairs import Repair
from graph_rewrite.mutate.search import Limits, Mutant, mutants_of, mutants_of_subprogram
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.mutate.thinning import MutantJudge
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.onnx_files.assembly import model
from tests.graph_rewrite.mutate.programs import CONV, conv


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def one_convolution() -> Graph:
    return model("(float[2,4,8,8] x) => (z) { y = Conv<pads=[1,1,1,1]>(x, w, b) z = Relu(y) }",
                 w=weights(6, 4, 3, 3), b=weights(6))  # fmt: skip


def chain() -> Graph:
    text = """(float[1,4,8,8] x) => (z) {
        a = Conv<pads=[1,1,1,1]>(x, w) b = Add(a, x) c = Relu(b) d = Conv<pads=[1,1,1,1]>(c, w) z = Add(d, b) }"""
    return model(text, w=weights(4, 4, 3, 3))


def test_programs_are_cut_at_operators_that_are_not_linear() -> None:
    found = split(chain())
    sizes = [len(sub.nodes) for sub in found.subprograms]
    assert sizes == sorted(sizes)
    assert [str(refusal) for refusal in found.refused.values()] == ["Relu is not linear"]
    relu = next(iter(found.refused))
    assert all(relu not in sub.nodes for sub in found.subprograms)
    # Both convolutions are one structure; b + d is read by nobody else, and b = a + x by Relu too.
    assert sum(sub.program == program(2, [conv(0, 1)]) for sub in found.subprograms) == 1
    assert found.places[0] == 2


def test_no_subprogram_surrounds_an_operator_that_is_not_linear() -> None:
    """The sum of `b` and `d` reads both sides of Relu: with the first sum it would be before and after it."""
    graph = chain()
    names = {node.id: graph.names[node.outputs[0]] for node in graph.nodes.values()}
    for sub in split(graph).subprograms:
        inside = {names[node] for node in sub.nodes}
        assert not {"b", "z"} <= inside
        assert not {"a", "d"} <= inside


def test_large_subprograms_are_all_connected_sets_of_four() -> None:
    text = "(float[1,2,4,4] x) => (z) {" + "".join(f"y{i + 1} = Conv(y{i}, w) " for i in range(6)) + "z = Relu(y6) }"
    graph = model(text.replace("y0", "x"), w=weights(2, 2, 1, 1))
    found = split(graph)
    assert [len(sub.nodes) for sub in found.subprograms] == [1, 2, 3, 4]
    assert found.places == (6, 5, 4, 3)


def test_parallel_convolutions_are_joined() -> None:
    text = "(float[1,2,6,6] x, float[1,2,6,6] y) => (p, q) { a = Conv(x, w) b = Conv(y, v) p = Relu(a) q = Relu(b) }"
    found = split(model(text, w=weights(2, 2, 3, 3), v=weights(4, 2, 3, 3)))
    assert [len(sub.nodes) for sub in found.subprograms] == [1, 1, 2]
    assert found.subprograms[-1].program == program(4, [conv(0, 1, pad=0), conv(2, 3, pad=0)], [4, 5])


def test_operators_read_as_steps() -> None:
    text = """(float[1,4,8,8] x) => (z) {
        a = Conv(x, w) b = Pad(a, p) c = Slice(b, s, e, ax) d = Transpose<perm=[0,1,3,2]>(c) f = Mul(d, m)
        g = Concat<axis=1>(f, f, f) z = AveragePool<kernel_shape=[2,2]>(g) }"""
    graph = model(
        text, w=weights(4, 4, 3, 3), p=[0, 0, 1, 0, 0, 0, 0, 2], s=[1], e=[7], ax=[2], m=weights(4, 1, 1)
    )  # fmt: skip
    found = split(graph, largest=9)
    whole = found.subprograms[-1]
    assert len(whole.nodes) == 7
    assert not found.refused
    assert [s.op for s in whole.program.steps] == [
        "conv",
        "layout",
        "layout",
        "layout",
        "mul",
        "concat",
        "concat",
        "pool",
    ]
    assert types_of(whole.program, whole.shapes)[-1].shape == graph.types[graph.outputs[0]].shape  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[1,4,8,8] x) => (z) { z = Conv<auto_pad=\"SAME_UPPER\">(x, w) }", "auto_pad"),
        ("(float16[2,2] x) => (z) { z = Add(x, x) }", "float16"),
        ("(float[2,2] x) => (z) { z = Mul(x, x) }", "Mul of two values"),
        ("(float[2,2] x) => (z) { z = com.microsoft.Gelu(x) }", "not linear"),
        ("(float[4,2] x) => (z) { z = Split<axis=0, num_outputs=1>(x) }", "Split into one part"),
        ("(float[4,2] x) => (z) { z = Neg(x) }", "Neg is linear, but no step"),
        ("(int64[2,2] x) => (z) { z = Add(x, x) }", "int64"),
        ("(float[1,1,5,5] x) => (z) { z = AveragePool<kernel_shape=[2,2], ceil_mode=1>(x) }", "ceil_mode"),
        ("(float[4] x, float[4] y) => (z) { z = MatMul(x, y) }", "vector"),
    ],
)  # fmt: skip
def test_what_is_no_step_is_refused_with_a_reason(text: str, reason: str) -> None:
    found = split(model(text, **({"w": weights(2, 4, 3, 3)} if "w)" in text else {})))
    assert not found.subprograms
    assert [reason in str(refusal) for refusal in found.refused.values()] == [True]


def test_mutants_of_a_graph() -> None:
    result = mutants_of(one_convolution(), Limits(seconds=60, depth=2, keep=0.7))
    assert result.complete
    assert not result.interrupted
    wrong = {mutant.finding.share_wrong for mutant in result.found}
    assert 0.0 in wrong
    assert 0.125 in wrong
    seen = [str(mutant.program) for mutant in result.found]
    assert len(seen) == len(set(seen))


def test_a_time_limit_keeps_what_was_found() -> None:
    now = iter(range(10**6))
    whole = mutants_of(one_convolution(), Limits(depth=2))
    cut = mutants_of(one_convolution(), Limits(seconds=400, depth=2), clock=lambda: float(next(now)))
    assert not cut.complete
    assert 0 < len(cut.found) < len(whole.found)


def test_a_search_is_not_complete_if_one_subprogram_was_cut_short() -> None:
    """The others are too large to be searched, and end at once: time is left over."""
    now = iter(range(10**6))
    limits = Limits(seconds=400, depth=2, work=4 * 36 * 64)
    result = mutants_of(chain(), limits, clock=lambda: float(next(now)))
    assert len(result.searched) == 1
    assert result.subprograms
    assert next(now) < 400
    assert not result.complete


def test_the_listing_names_what_was_cut_short() -> None:
    now = iter(range(10**6))
    graph = chain()
    result = mutants_of(graph, Limits(seconds=800, depth=2, keep=0.7), clock=lambda: float(next(now)))
    assert 0 < len(result.cut) <= len(result.searched)
    text = list(lines(graph, result))
    assert text.count("  cut short: there may be more") == len(result.cut)
    assert f"{len(result.cut)} of {len(result.searched)} subprograms were cut short" in text
    flags = [sub["complete"] for sub in to_json(graph, result)["subprograms"]]
    assert flags.count(False) == len(result.cut)


def test_ctrl_c_keeps_what_was_found() -> None:
    def interrupt(mutant: Mutant) -> None:
        raise KeyboardInterrupt

    result = mutants_of(one_convolution(), Limits(depth=2), on_found=interrupt)
    assert result.interrupted
    assert not result.complete
    assert len(result.found) == 1


def test_a_subprogram_that_is_too_large_is_refused() -> None:
    result = mutants_of(one_convolution(), Limits(work=1000))
    assert [str(refusal) for _, refusal in result.subprograms] == ["too large to be proved at its real shape"]
    assert not result.found
    assert not result.searched


def by_hand(real: tuple[tuple[int, ...], ...], made: Subprogram | None = None) -> Iterator[Mutant]:
    return mutants_of_subprogram(made or Subprogram(CONV, real), Limits(depth=2, keep=0.85))


def test_mutants_are_found_in_small_and_proved_at_the_real_shape() -> None:
    real = ((8, 8, 18, 18), (4, 8, 3, 3))
    small = small_instance(Subprogram(CONV, real))
    assert sum(np.prod(shape) for shape in small.shapes) < 10_000
    wanted = (1, 8, 18, 144)
    for mutant in by_hand(real):
        types = types_of(mutant.program, real)
        if any(type.shape == wanted for type in types):
            assert mutant.finding.share_wrong == pytest.approx(14 / 144)
            assert mutant.finding.positions == 8 * 4 * 18 * 18
            return
    raise AssertionError("the whole batch in one row was not found")


def test_the_values_that_choose_a_mutant_do_not_prove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[np.ndarray]] = {"solved": [], "proved": []}
    whole, completed = prove, Sketch.at

    def proving(trials: RandomTrials, mutant: TensorProgram, keep: float = 0.0) -> Disagreement | None:
        seen["proved"] += [trials.inputs(trial)[0] for trial in range(trials.count)]
        return whole(trials, mutant, keep)

    def completing(self: Sketch, targets: list[Target], inputs: list[np.ndarray], keep: float) -> TensorProgram | None:
        seen["solved"].append(inputs[0])
        return completed(self, targets, inputs, keep)

    monkeypatch.setattr(search, "prove", proving)
    monkeypatch.setattr(Sketch, "at", completing)
    next(by_hand(((2, 2, 6, 6), (2, 2, 3, 3))))
    assert len(seen["proved"]) >= 3
    assert all(not np.array_equal(a, b) for a in seen["solved"] for b in seen["proved"])


def test_the_batch_of_the_small_instance_becomes_the_real_one() -> None:
    small, real = (Subprogram(CONV, ((batch, 2, 8, 8), (2, 2, 3, 3))) for batch in (4, 16))
    sketch = next(s for s in Generator(CONV, small.shapes, depth=2).sketches() if "factor=4" in str(s.steps))
    _, other = lifted(sketch, small, real)
    assert "factor=16" in str(other.steps)
    assert "factor=4," not in str(other.steps)


def test_the_listing_names_boxes_shares_and_refusals() -> None:
    graph = one_convolution()
    result = mutants_of(graph, Limits(depth=2, keep=0.7))
    text = "\n".join(lines(graph, result))
    assert "conv [1,4,8,16] [6,4,3,3] [6]" in text
    assert "12.5% wrong, in 2 boxes: [0:1,0:6,0:8,7:8], [1:2,0:6,0:8,0:1]" in text
    assert "equal everywhere" in text
    assert "1 node is no part of a subprogram: Relu is not linear" in text
    data = json.loads(json.dumps(to_json(graph, result)))
    (sub,) = data["subprograms"]
    assert len(sub["mutants"]) == len(result.found)
    wanted = {"program", "boxes", "share_wrong", "error_bound", "repair", "cost"}
    assert all(wanted <= mutant.keys() for mutant in sub["mutants"])
    assert "repaired by" in text
    assert "times the multiplications of the original" in text


def test_mutants_come_with_repairs_that_are_equal_everywhere() -> None:
    result = mutants_of(one_convolution(), Limits(depth=2, keep=0.7))
    repaired = [mutant for mutant in result.found if isinstance(mutant.repair, Repair)]
    assert len(repaired) > 1
    for mutant in repaired:
        assert isinstance(mutant.repair, Repair)
        assert not mutant.finding.exact
        finding = prove(
            RandomTrials(mutant.subprogram.program, mutant.subprogram.shapes, seed=5), mutant.repair.program
        )
        assert finding is not None
        assert finding.exact
    assert all(mutant.repair is None for mutant in result.found if mutant.finding.exact)
    assert result.found[0].subprogram.constants == {1, 2}


def test_a_search_keeps_no_values_of_what_it_has_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of large subprograms, all together, do not fit into memory."""
    judges: list[weakref.ref[MutantJudge]] = []
    alive: list[int] = []

    def judging(sub: Subprogram) -> MutantJudge:
        made = MutantJudge(sub)
        alive.append(sum(other() is not None for other in judges))
        judges.append(weakref.ref(made))
        return made

    monkeypatch.setattr(search, "MutantJudge", judging)
    result = mutants_of(chain(), Limits(depth=2, keep=0.5))
    assert result.found
    assert len(judges) > 1
    assert max(alive) <= 1
    gc.collect()
    assert not [made for made in judges if made() is not None]


def test_a_mutant_without_hope_is_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TensorProgram] = []

    def is_hopeful(made: TensorProgram) -> bool:
        asked.append(made)
        return False

    monkeypatch.setattr(search, "_at", lambda *given: pytest.fail("evaluated at the real shapes"))
    sub = Subprogram(CONV, ((2, 2, 6, 6), (2, 2, 3, 3)))
    assert not list(mutants_of_subprogram(sub, Limits(depth=2), is_hopeful=is_hopeful))
    assert len(asked) > 3
