from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights
from graph_rewrite.rules import elimination as E

def test_a():
    check_rule(E.ComposeTransposes, model("(float[2,3] x) => (y) { t = Transpose<perm=[1,0]>(x)  y = Transpose<perm=[1,0]>(t) }"), becomes=["Identity"] )
def test_b():
    check_rule(E.DropIdentity, model("(float[2,3] x) => (y) <int64[2] s = {3, 2}> { t = Identity(x)  z = MatMul(t, w) u=com.microsoft.Gelu(z) y = Identity(u) }", w=weights(3,4)), 2)
