"""Types and prime-field values of substitutions' operators, against plain numpy and exact integers."""

import itertools

import numpy as np
import pytest

from graph_rewrite.terms.semantics import (
    P,
    TermType,
    evaluate,
    infer,
    output_types,
    random_arrays,
    uninterpreted,
)
from graph_rewrite.terms.substitution import INPUT, Operand, Side, term

X = [Operand(INPUT, i) for i in range(4)]


def side(*terms, outputs=None):
    last = len(terms) - 1
    return Side(tuple(terms), tuple(outputs) if outputs else (Operand(last),))


def value(*terms, arrays, outputs=None, seed=0):
    return evaluate(side(*terms, outputs=outputs), dict(enumerate(arrays)), seed=seed)


def draw(*shapes):
    return list(random_arrays({i: TermType(s) for i, s in enumerate(shapes)}, np.random.default_rng(0)).values())


def window(op, **params):
    return term(op, *X[: 2 if op == "conv" else 1], **params)


def test_products_are_exact_where_int64_would_overflow():
    a = np.full((2, 5), P - 1, dtype=np.int64)
    b = np.full((5, 3), P - 2, dtype=np.int64)
    (got,) = value(term("matmul", X[0], X[1], activation="none"), arrays=[a, b])
    assert (got == 5 * (P - 1) * (P - 2) % P).all()
    (got,) = value(term("ewmul", X[0], X[1]), arrays=[a, a])
    assert (got == (P - 1) ** 2 % P).all()


@pytest.mark.parametrize(("padding", "stride"), list(itertools.product(("same", "valid"), ((1, 1), (2, 1), (2, 2)))))
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_is_the_sum_over_its_windows(padding, stride, groups):
    x, w = draw((2, 4, 5, 4), (4, 4 // groups, 3, 2))
    (got,) = value(term("conv", X[0], X[1], activation="none", padding=padding, stride=stride), arrays=[x, w])
    rows, columns = [
        -(-n // s) if padding == "same" else (n - k) // s + 1 for n, k, s in zip((5, 4), (3, 2), stride, strict=True)
    ]
    assert got.shape == (2, 4, rows, columns)
    total = [max((o - 1) * s + k - n, 0) for o, s, k, n in zip((rows, columns), stride, (3, 2), (5, 4), strict=True)]
    before = [t // 2 if padding == "same" else 0 for t in total]
    for n, m, r, c in np.ndindex(*got.shape):
        expected = 0
        for i, kr, kc in np.ndindex(*w.shape[1:]):
            row, column = r * stride[0] + kr - before[0], c * stride[1] + kc - before[1]
            if 0 <= row < 5 and 0 <= column < 4:
                channel = m // (4 // groups) * (4 // groups) + i
                expected += int(x[n, channel, row, column]) * int(w[m, i, kr, kc])
        assert got[n, m, r, c] == expected % P


def test_average_divides_by_the_whole_kernel():
    (x,) = draw((1, 1, 3, 3))
    (got,) = value(window("avgpool", kernel=(3, 3), padding="same", stride=(1, 1)), arrays=[x])
    assert got[0, 0, 0, 0] * 9 % P == x[0, 0, :2, :2].sum() % P


def test_max_depends_on_the_elements_of_a_window_and_not_on_their_order():
    x = np.arange(16, dtype=np.int64).reshape(1, 1, 4, 4)
    pool = window("maxpool", kernel=(2, 2), padding="valid", stride=(2, 2))
    (a,), (b,) = value(pool, arrays=[x]), value(pool, arrays=[x.transpose(0, 1, 3, 2)])
    np.testing.assert_array_equal(a.transpose(0, 1, 3, 2), b)
    changed = x.copy()
    changed[0, 0, 0, 0] = 99
    (c,) = value(pool, arrays=[changed])
    assert [(a != c).sum(), a[0, 0, 0, 0] != c[0, 0, 0, 0]] == [1, True]


def test_activations_are_functions_that_differ_by_name_and_seed():
    (x,) = draw((50,))
    same = uninterpreted("relu", x, 3)
    np.testing.assert_array_equal(uninterpreted("relu", x[::-1], 3), same[::-1])
    assert (same >= 0).all()
    assert (same < P).all()
    for name, seed in (("tanh", 3), ("relu", 4)):
        assert not (uninterpreted(name, x, seed) == same).any()


def test_split_undoes_nested_concats_at_their_own_borders():
    arrays = draw((2, 1), (2, 3), (2, 2))
    terms = [
        term("concat", X[1], X[2], axis=1, rank=2),
        term("concat", X[0], Operand(0), axis=1, rank=2),
        term("relu", Operand(1)),
        term("split", Operand(2), axis=1),
        term("split", Operand(3, 1), axis=1),
    ]
    got = value(*terms, arrays=arrays, outputs=[Operand(3, 0), Operand(4, 0), Operand(4, 1)])
    for part, array in zip(got, arrays, strict=True):
        np.testing.assert_array_equal(part, uninterpreted("relu", array, 0))


def test_borders_pass_through_operators_that_keep_their_axis():
    cut = TermType((2, 6, 4, 4), ((), (2,), (), ()))
    weight = TermType((6, 6, 3, 3), ((4,), (), (), ()))
    conv = window("conv", activation="none", padding="same", stride=(1, 1))
    assert infer(conv, [cut, weight])[0].cuts == ((), (4,), (), ())
    assert infer(term("ewadd", X[0], X[1]), [cut, TermType(cut.shape)])[0].cuts == ((), (), (), ())
    assert infer(term("transpose", X[0], perm=(0, 2, 3, 1)), [cut])[0].cuts == ((), (), (), (2,))
    assert infer(term("split", X[0], axis=0), [cut]) is None
    rows, columns = TermType((3, 2), ((1,), ())), TermType((2, 5), ((), (3,)))
    assert infer(term("matmul", X[0], X[1], activation="none"), [rows, columns])[0].cuts == ((1,), (3,))


@pytest.mark.parametrize(
    ("node", "shapes"),
    [
        (term("ewadd", X[0], X[1]), [(2, 3), (1, 3)]),
        (term("matmul", X[0], X[1], activation="none"), [(2, 3), (2, 3)]),
        (term("smul", X[0], X[1]), [(2, 3), (2,)]),
        (term("concat", X[0], X[1], axis=0, rank=2), [(2, 3), (2, 4)]),
        (term("concat", X[0], X[1], axis=0, rank=4), [(2, 3), (2, 3)]),
        (term("transpose", X[0], perm=(1, 0)), [(2, 3, 4)]),
        (term("reshape", X[0], shape=(4, -1)), [(2, 3)]),
        (term("enlarge", X[0], kernel=(3, 3)), [(1, 1, 5, 5)]),
        (window("conv", activation="none", padding="same", stride=(1, 1)), [(1, 4, 3, 3), (3, 2, 1, 1)]),
        (window("conv", activation="none", padding="valid", stride=(1, 1)), [(1, 2, 2, 2), (3, 2, 3, 3)]),
    ],
)
def test_operands_that_do_not_fit_have_no_type(node, shapes):
    assert infer(node, [TermType(shape) for shape in shapes]) is None
    with pytest.raises(ValueError, match=node.op):
        value(node, arrays=draw(*shapes))


@pytest.mark.parametrize(
    ("constant", "node", "shape"),
    [
        (term("imatmul"), term("matmul", X[0], Operand(0), activation="none"), (2, 3)),
        (term("imatmul"), term("matmul", Operand(0), X[0], activation="none"), (4, 2, 3)),
        (term("iewmul"), term("ewmul", X[0], Operand(0)), (2, 3)),
        (
            term("iconv", kernel=(3, 5)),
            term("conv", X[0], Operand(0), activation="none", padding="same", stride=(1, 1)),
            (2, 3, 4, 4),
        ),
    ],
)
def test_neutral_constants_take_their_size_from_what_they_meet(constant, node, shape):
    (x,) = draw(shape)
    (got,) = value(constant, node, arrays=[x])
    np.testing.assert_array_equal(got, x)


def test_a_constant_alone_has_no_type():
    assert output_types(side(term("imatmul")), {}) is None
    assert output_types(side(term("iewmul"), term("ewmul", Operand(0), Operand(0))), {}) is None


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_an_enlarged_kernel_convolves_the_same(kernel):
    x, w = draw((1, 2, 5, 6), (3, 2, kernel, kernel))
    conv = {"activation": "none", "padding": "same", "stride": (1, 1)}
    (small,) = value(term("conv", X[0], X[1], **conv), arrays=[x, w])
    (large,) = value(term("enlarge", X[1], kernel=(5, 5)), term("conv", X[0], Operand(0), **conv), arrays=[x, w])
    np.testing.assert_array_equal(small, large)
