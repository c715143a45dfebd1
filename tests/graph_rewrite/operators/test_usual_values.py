"""Values of inputs that say how a node works, where little is known of the node."""

from graph_rewrite import load
from graph_rewrite.operators.usual_values import attempts, settled_values
from tests.graph_rewrite.sample_models import parsed


def test_readers_of_unknown_shape_ask_for_nothing() -> None:
    text = """(float[2,3] x, int64[1] k, int64[4] n) => (float[a,b] v, float[c,d,e,f] g)
        { t = custom.F(x) v, i = TopK(t, k) g = AffineGrid(t, n) }"""
    graph = load(parsed(text))
    assert "n" not in settled_values(graph)
    assert attempts(graph, {})
