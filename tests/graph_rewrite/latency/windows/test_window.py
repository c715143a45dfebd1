"""Regions cut out of two graphs: they compute the same, alike ones are counted, and what cannot be cut says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graph_rewrite import Candidate, Graph, Rewriter, load
from graph_rewrite.latency.windows import NotSeparable, WindowPair, changed_windows, window_around
from graph_rewrite.latency.windows.window import READERS, shape_key
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from tests.envs.fakes import tower_graph
from tests.graph_rewrite.body_models import body_model
from tests.graph_rewrite.sample_models import conditional, overridable, parsed, weights

BLOCKS = 3


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return tower_graph(tmp_path_factory.mktemp("models"), BLOCKS)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[onnx.ModelProto], Graph]:
    def make(model: onnx.ModelProto) -> Graph:
        onnx.save(model, tmp_path / "model.onnx")
        return normalise(load(tmp_path / "model.onnx"))[0]

    return make


def rewrites(graph: Graph, granularity: str = "both") -> list[Candidate]:
    return list(Rewriter(granularity=granularity, deployment=False).candidates(graph))  # type: ignore[arg-type]


def run(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    session = ort.InferenceSession(to_proto(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def random_feeds(graph: Graph) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    types = {graph.names[value]: graph.types[value] for value in graph.inputs}
    known = {name: type for name, type in types.items() if type is not None}
    assert known.keys() == types.keys()
    assert {type.dtype for type in known.values()} <= {onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL}
    return {
        name: rng.standard_normal(type.shape).astype(onnx.helper.tensor_dtype_to_np_dtype(type.dtype))
        for name, type in known.items()
    }


def test_both_sides_of_every_cut_compute_the_same(tower: Graph) -> None:
    found: dict[str, WindowPair] = {}
    for candidate in rewrites(tower):
        found |= {cut.key: cut for cut in changed_windows(tower, candidate.apply())}
    assert len(found) > 10
    for cut in found.values():
        feeds = random_feeds(cut.before)
        assert set(feeds) == set(random_feeds(cut.after))
        before, after = run(cut.before, feeds), run(cut.after, feeds)
        shared = before.keys() & after.keys()
        # A model's output may be another value afterwards.
        pairs = [(before[name], after[name]) for name in shared] or [*zip(before.values(), after.values(), strict=True)]
        assert pairs
        for one, other in pairs:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_alike_sites_are_one_cut_with_a_count(tower: Graph) -> None:
    groups = [c for c in rewrites(tower, "class") if c.count == BLOCKS]
    assert groups
    for candidate in groups:
        found = changed_windows(tower, candidate.apply())
        assert sum(cut.count for cut in found) <= BLOCKS
    # Blocks in the middle of a tower look alike whatever their weights; its ends may not.
    assert any(cut.count > 1 for c in groups for cut in changed_windows(tower, c.apply(), margin=0))


def test_a_cut_is_smaller_than_the_graph_and_holds_what_changed(tower: Graph) -> None:
    for candidate in rewrites(tower, "site"):
        after = candidate.apply()
        found = changed_windows(tower, after, margin=1)
        assert sum(cut.count for cut in found) == 1
        removed = {node.id for node in candidate.site.removed}
        assert removed <= set(found[0].before.nodes) < set(tower.nodes)
        inserted = set(after.nodes) - set(tower.nodes)
        assert inserted <= set(found[0].after.nodes)


def test_a_wider_margin_keeps_more(tower: Graph) -> None:
    after = rewrites(tower, "site")[0].apply()
    sizes = [len(changed_windows(tower, after, margin)[0].before.nodes) for margin in range(4)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_heavy_operators_are_kept_only_next_to_the_change(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    graph = opened(
        parsed(
            "(float[2,4] x) => (float[2,4] y)"
            "{ a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)  d = Neg(c)  e = Neg(d)  f = Abs(e) g = MatMul(f, w)"
            " y = Relu(g) }",
            weights("w", 4, 4),
        )
    )
    change = next(c for c in rewrites(graph, "site") if [n.op for n in c.site.removed] == ["Neg", "Neg"])
    kept = changed_windows(graph, change.apply(), margin=3)[0].before
    assert sorted(node.op for node in kept.nodes.values()) == ["Abs", "MatMul", "MatMul", "Neg", "Neg"]


def test_other_weights_do_not_make_another_kind(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    keys = set()
    for seed in range(2):
        graph = opened(parsed("(float[2,32] x) => (float[2,32] y) { t = Mul(x, w) u = Neg(t) y = Neg(u) }",
                              weights("w", 32, seed=seed)))  # fmt: skip
        change = next(c for c in rewrites(graph, "site") if [n.op for n in c.site.removed] == ["Neg", "Neg"])
        keys |= {cut.key for cut in changed_windows(graph, change.apply())}
    assert len(keys) == 1


def test_equal_graphs_have_no_cuts(tower: Graph) -> None:
    assert changed_windows(tower, tower) == []


def test_deployment_choices_cannot_be_cut(tower: Graph) -> None:
    with pytest.raises(NotSeparable, match="ConvBNFusion"):
        changed_windows(tower, tower.with_disabled_optimizers({"ConvBNFusion"}))


def test_strangers_cannot_be_cut(tower: Graph, opened: Callable[[onnx.ModelProto], Graph]) -> None:
    stranger = opened(parsed("(float[2] x) => (float[2] y) { y = Relu(x) }"))
    with pytest.raises(NotSeparable, match="share no nodes"):
        changed_windows(tower, stranger)


@pytest.mark.parametrize("model", [conditional, overridable])
def test_subgraphs_and_overridable_initializers_stay_out_of_margins(
    opened: Callable[[onnx.ModelProto], Graph], model: Callable[[], onnx.ModelProto]
) -> None:
    graph = opened(model())
    for candidate in rewrites(graph, "site"):
        if candidate.site.removed[0].opaque:
            continue  # what is rewritten inside is the window itself
        try:
            found = changed_windows(graph, candidate.apply())
        except NotSeparable:
            continue
        for cut in found:
            assert not any(node.captures for node in cut.before.nodes.values())
            assert not set(graph.stored) & {v for node in cut.before.nodes.values() for v in node.inputs}


def conv_chain(opened: Callable[[onnx.ModelProto], Graph]) -> Graph:
    """Convolutions of equal shapes, each with a Relu: the next one is behind it."""
    body = "a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, w) d = Relu(c)"
    body += " e = Conv<pads=[1,1,1,1]>(d, w) f = Relu(e) g = Conv<pads=[1,1,1,1]>(f, w) y = Relu(g)"
    return opened(parsed(f"(float[1,4,6,6] x) => (float[1,4,6,6] y) {{ {body} }}", weights("w", 4, 4, 3, 3)))


def test_a_window_takes_in_the_heavy_reader_and_not_the_heavy_producer_behind_a_light_one(
    opened: Callable[[onnx.ModelProto], Graph],
) -> None:
    graph = conv_chain(opened)
    order = [node.id for node in graph.order()]
    middle = window_around(graph, order[2:4])
    # The Relu before it, the convolution and its Relu, and the convolution that reads that.
    assert [node.op for node in middle.order()] == ["Relu", "Conv", "Relu", "Conv"]
    assert set(middle.nodes) == set(order[1:5])
    assert all(middle.nodes[n] is graph.nodes[n] for n in middle.nodes)


def test_windows_are_models_and_alike_where_the_graph_is(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    graph = conv_chain(opened)
    order = [node.id for node in graph.order()]
    small = window_around(graph, order[2:4])
    assert [value.shape for value in run(small, random_feeds(small)).values()] == [(1, 4, 6, 6)]
    assert shape_key(small) == shape_key(window_around(graph, order[4:6]))
    assert shape_key(small) != shape_key(window_around(graph, order[6:8]))  # nothing reads the last one


def test_a_window_takes_in_the_first_of_many_readers(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    count = READERS + 3
    body = " ".join(["a = Tanh(x)", *(f"y{i} = LeakyRelu<alpha=0.{i + 1}>(a)" for i in range(count))])
    results = ", ".join(f"float[2,3] y{i}" for i in range(count))
    graph = opened(parsed(f"(float[2,3] x) => ({results}) {{ {body} }}"))
    first, *readers = (node.id for node in graph.order())
    around = window_around(graph, [first])
    assert set(around.nodes) == {first, *readers[:READERS]}
    assert graph.nodes[first].outputs[0] in around.outputs  # others read it
    assert set(window_around(graph, [first, readers[-1]]).nodes) == {first, *readers[:READERS], readers[-1]}


def longer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with an operator behind its last node."""
    known = model.graph.output[0]
    model.graph.node.append(onnx.helper.make_node("Exp", [known.name], ["behind"]))
    model.graph.output.append(onnx.ValueInfoProto(name="behind", type=known.type))
    return model


def bodies_rewritten(graph: Graph) -> list[Candidate]:
    found = [candidate for candidate in rewrites(graph, "site") if candidate.site.removed[0].opaque]
    assert found
    return found


@pytest.mark.parametrize("name", ["chains within If", "a chain within If within Scan"])
def test_windows_of_rewritten_bodies_compute_the_same(opened: Callable[[onnx.ModelProto], Graph], name: str) -> None:
    graph = opened(longer(body_model(name)))
    for candidate in bodies_rewritten(graph):
        [cut] = changed_windows(graph, candidate.apply())
        assert len([node for node in cut.before.nodes.values() if node.opaque]) == 1
        for choice in (True, False):
            feeds = {**random_feeds(cut.before), "c": np.array(choice)}
            before, after = run(cut.before, feeds), run(cut.after, feeds)
            assert before.keys() == after.keys()
            for output, value in before.items():
                np.testing.assert_allclose(after[output], value, rtol=1e-5, atol=1e-6)


def test_names_in_a_window_are_those_that_its_subgraphs_read(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    model = conditional()
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, [2]))
    graph = opened(model)
    node = next(node for node in graph.order() if node.captures)
    small = window_around(graph, [node.id])
    assert set(node.captures) <= set(small.names.values())
    assert run(small, {**random_feeds(small), "c": np.array(True)})


def test_a_window_of_a_loop_of_unknown_length_is_refused(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    model = body_model("a chain within Loop within Loop")
    [turns] = [tensor for tensor in model.graph.initializer if tensor.name == "n"]
    model.graph.input.append(onnx.helper.make_tensor_value_info("n", turns.data_type, turns.dims))
    model.graph.initializer.remove(turns)
    graph = opened(model)
    node = next(node for node in graph.order() if node.opaque)
    with pytest.raises(NotSeparable, match="Loop"):
        window_around(graph, [node.id])
