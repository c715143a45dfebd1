"""Session choices: what is offered, where it can make a difference, and that environments never see it."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting import session_choices
from graph_rewrite.rewriting.deployment_choices import deployment_candidates
from graph_rewrite.rewriting.session_choices import session_candidate, session_candidates, thread_choices
from graph_rewrite.runtime import Deployment
from tests.graph_rewrite.rules.checking import model, weights

W = weights(16, 16)
CHAIN = model("(float[2,16] x) => (y) { a = Relu(x) y = Tanh(a) }")
PRODUCT = model("(float[2,16] x) => (y) { y = MatMul(x, w) }", w=W)
PRODUCT_OF_INPUTS = model("(float[16,16] x) => (y) { y = MatMul(x, x) }")
INTEGERS = model("(int64[2,16] x) => (y) { y = Add(x, x) }")
CONTROL_FLOW = model(
    "(float[2,16] x, bool c) => (float[2,16] y) {"
    " y = If(c) <then_branch = g () => (float[2,16] a) { a = Relu(x) },"
    " else_branch = h () => (float[2,16] b) { b = Tanh(x) }> }"
)
BRANCHES = model("(float[2,16] x) => (y) { a = Relu(x) b = Tanh(x) y = Add(a, b) }")
CONVOLUTION = model("(float[1,16,8,8] x) => (y) { y = Conv(x, w) }", w=weights(16, 16, 3, 3))
ORDERS = ["set node_order=last_input_first", "set node_order=first_input_first"]
MEMORY = ["set enable_mem_pattern=false", "set enable_cpu_mem_arena=false"]
DENORMALS = "set set_denormal_as_zero=true"
CUDA_GRAPH, TF32 = "set enable_cuda_graph=true", "set use_tf32=false"
CUDNN = ["set cudnn_conv_algo_search=heuristic", "set cudnn_conv_algo_search=default"]
THREADS = ["set dynamic_block_base=4", "set allow_spinning=false"]


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_choices, "available_cores", lambda: 4)
    monkeypatch.setattr(session_choices, "physical_cores", lambda: 4)
    monkeypatch.setattr(session_choices, "can_flush", lambda: True)


def labels(graph: Graph, deployment: Deployment, *threads: int) -> list[str]:
    return [candidate.label for candidate in session_candidates(graph, deployment, threads)]


@pytest.mark.parametrize(
    ("graph", "deployment", "offered"),
    [
        (CHAIN, Deployment(), [*MEMORY, DENORMALS]),
        (CHAIN, Deployment(threads=4), [*THREADS, *MEMORY, DENORMALS]),
        (PRODUCT, Deployment(), [*MEMORY, "set disable_prepacking=true", DENORMALS]),
        (PRODUCT_OF_INPUTS, Deployment(), [*MEMORY, DENORMALS]),
        (BRANCHES, Deployment(), [ORDERS[0], *MEMORY, DENORMALS]),
        (INTEGERS, Deployment(), MEMORY),
        # A walk that visits first inputs first lists the nodes as they are listed; the other changes the branches.
        (BRANCHES, Deployment("cuda"), [CUDA_GRAPH]),
        # With two of four cores, threads for a second operator would take a core that others have.
        (BRANCHES, Deployment(threads=2), [ORDERS[0], *THREADS, *MEMORY, DENORMALS]),
        (
            BRANCHES,
            Deployment(threads=4),
            [ORDERS[0], "set execution_mode=parallel, inter_op_threads=2", *THREADS, *MEMORY, DENORMALS],
        ),
        (CONVOLUTION, Deployment("cuda"), [CUDA_GRAPH, "set prefer_nhwc=true", *CUDNN, TF32]),
        (PRODUCT, Deployment("cuda"), [CUDA_GRAPH, TF32]),
        (CHAIN, Deployment("cuda"), [CUDA_GRAPH]),
        (CONTROL_FLOW, Deployment("cuda"), []),
    ],
)
def test_what_can_make_a_difference_is_offered(graph: Graph, deployment: Deployment, offered: list[str]) -> None:
    assert labels(graph, deployment) == offered


def test_a_setting_that_is_made_is_not_offered_again_and_stays() -> None:
    first = session_candidates(CHAIN, Deployment())[0].apply()
    assert first.session_settings == (("enable_mem_pattern", False),)
    assert labels(first, Deployment()) == [*MEMORY[1:], DENORMALS]
    both = session_candidates(first, Deployment())[0].apply()
    assert dict(both.session_settings) == {"enable_mem_pattern": False, "enable_cpu_mem_arena": False}
    assert len({CHAIN.hash, first.hash, both.hash}) == 3


def test_threads_are_offered_where_they_are_free() -> None:
    deployment = Deployment(threads=2)
    assert labels(CHAIN, deployment, 1, 2, 4)[:2] == ["set threads=4", "set threads=1"]
    (one, *_) = session_candidates(CHAIN, deployment, (1, 2))
    alone = one.apply()
    assert deployment.asked_by(alone).threads == 1
    assert labels(alone, deployment, 1, 2, 4) == ["set threads=4", *MEMORY, DENORMALS]


@pytest.mark.parametrize(("cores", "threads"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 3, 4, 6)), (8, (1, 2, 4, 8))])
def test_numbers_of_threads(cores: int, threads: tuple[int, ...]) -> None:
    assert thread_choices(cores) == threads
    assert thread_choices() == (1, 2, 4)


def test_optimisers_are_refused_on_top_of_settings_and_the_other_way_round() -> None:
    graph = model("(float[1,8,16] x) => (y) { a = MatMul(x, w) y = Add(a, b) }", w=W, b=W[0])
    (refusal,) = deployment_candidates(graph)
    setting = session_candidates(graph, Deployment())[0]
    one = session_candidates(refusal.apply(), Deployment())[0].apply()
    other = deployment_candidates(setting.apply())[0].apply()
    assert one.hash == other.hash
    assert (one.disabled_optimizers, dict(one.session_settings)) == ({"MatMulAddFusion"}, {"enable_mem_pattern": False})
    keys = {refusal.key, setting.key, *(c.key for c in session_candidates(refusal.apply(), Deployment()))}
    assert len(keys) == 2 + len(session_candidates(graph, Deployment()))


def test_what_does_not_keep_denormals_is_not_strict() -> None:
    offered = session_candidates(CHAIN, Deployment(), strict=True)
    assert [candidate.label for candidate in offered] == MEMORY


def test_denormals_are_flushed_only_where_no_other_code_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_choices, "can_flush", lambda: False)
    assert labels(CHAIN, Deployment()) == MEMORY


@pytest.mark.parametrize("graph", [CONVOLUTION, CHAIN])
def test_choices_for_cuda_make_the_options_of_its_provider(graph: Graph) -> None:
    for candidate in session_candidates(graph, Deployment("cuda")):
        (changed,) = Deployment("cuda").asked_by(candidate.apply()).settings.cuda_options().items()
        assert f"set {changed[0]}" in candidate.label
        assert Deployment().asked_by(candidate.apply()) == Deployment()
        found = session_candidate(graph, candidate.label)
        assert found is not None
        assert found.apply().hash == candidate.apply().hash


def test_a_choice_is_found_by_its_name_wherever_it_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = session_candidates(BRANCHES, Deployment(threads=4), (1, 2))
    monkeypatch.setattr(session_choices, "physical_cores", lambda: 1)
    for candidate in offered:
        found = session_candidate(BRANCHES, candidate.label)
        assert found is not None
        assert (found.key, found.apply().hash) == (candidate.key, candidate.apply().hash)
    for label in ("refuse GeluFusionL1", "set threads=0", "set threads=2, x=1", "set allow_spinning=true", "MatMul"):
        assert session_candidate(BRANCHES, label) is None


def test_rewrites_keep_the_settings() -> None:
    graph = model("(float[2,16] x) => (y) { i = Identity(x) y = Relu(i) }").with_session_settings({"threads": 2})
    candidates = [c for c in Rewriter(deployment=False).candidates(graph) if c.kind == "site"]
    assert candidates
    assert {candidate.apply().session_settings for candidate in candidates} == {(("threads", 2),)}


def test_the_rewriter_does_not_offer_them() -> None:
    """Environments offer the same candidates as before, and policies choose from them."""
    assert not [c for c in Rewriter().candidates(BRANCHES) if c.session_settings]


def test_another_runtime_has_numbers_of_threads_to_choose_and_nothing_else() -> None:
    deployment = Deployment("openvino", 4)
    offered = session_candidates(BRANCHES, deployment, (1, 2, 4))
    assert [candidate.label for candidate in offered] == ["set threads=2", "set threads=1"]
    assert deployment.asked_by(offered[0].apply()) == Deployment("openvino", 2)
    assert session_candidates(BRANCHES, deployment) == []


def test_an_order_of_nodes_is_no_setting_of_the_session() -> None:
    """The file brings it along; the way back is offered once another is chosen."""
    ordered = session_candidates(BRANCHES, Deployment())[0].apply()
    assert dict(ordered.session_settings) == {"node_order": "last_input_first"}
    assert Deployment(threads=2).asked_by(ordered) == Deployment(threads=2)
    assert labels(ordered, Deployment()) == [ORDERS[1], *MEMORY, DENORMALS]
    assert session_candidate(BRANCHES, ORDERS[0]).apply().hash == ordered.hash  # type: ignore[union-attr]
