"""Small expressions and families that tests of the generator share."""

from dataclasses import replace

from graph_rewrite.generate.families import families

OPS = ("ewadd", "matmul", "relu", "transpose")


def matrices(*ops, inputs=2):
    (family, *_) = families(ops)
    assert family.name == "matrices"
    return replace(family, inputs=family.inputs[:inputs], test_inputs=family.test_inputs[:inputs])


def relu(a):
    return ("relu", (), (a,), 0)


def add(a, b):
    return ("ewadd", (), tuple(sorted((a, b), key=str)), 0)


def matmul(a, b, activation="none"):
    return ("matmul", (("activation", activation),), (a, b), 0)


def concat(a, b, axis=0):
    return ("concat", (("axis", axis), ("rank", 2)), (a, b), 0)


def split(a, index, axis=0):
    return ("split", (("axis", axis),), (a,), index)
