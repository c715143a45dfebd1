"""Sizes for symbolic dimensions: as the user says, or as the model accepts."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from graph_rewrite.errors import UserError
from graph_rewrite.symbolic.bindings import bind, parse_bindings
from graph_rewrite.symbolic.choices import Role, role_of
from graph_rewrite.symbolic.generalise import generalise
from graph_rewrite.symbolic.inputs import Place
from tests.graph_rewrite.sample_models import parsed
from tests.graph_rewrite.symbolic.dynamic_models import transformer
from tests.graph_rewrite.symbolic.walks import open_dynamic


def write(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {text}'), path)
    return path


TWO = """(float[batch, seq, 4] x, float[batch, seq, 4] mask, float[2] w) => (float[batch, seq, 4] y)
    { t = Mul(x, mask)  y = Relu(t) }"""


def test_the_first_text_of_each_input_is_the_first_binding() -> None:
    assert parse_bindings(["ids:1,64", "ids:1,384", "mask:1,64"]) == [
        {"ids": (1, 64), "mask": (1, 64)},
        {"ids": (1, 384)},
    ]
    assert parse_bindings(["auto"]) == []


def test_a_symbol_has_one_size_wherever_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path / "two.onnx", TWO)
    found = bind(path, ["x:2,6,4", "x:3,9,4"])
    assert found.shapes == {"x": (2, 6, 4), "mask": (2, 6, 4)}
    assert found.values == ({"batch": 2, "seq": 6}, {"batch": 3, "seq": 9})
    assert found.note == ""
    with pytest.raises(UserError, match="dimension seq is 6 elsewhere and 7 here"):
        bind(path, ["x:2,6,4", "mask:2,7,4"])


def test_a_sum_of_dimensions_is_what_its_parts_are(tmp_path: Path) -> None:
    path = write(
        tmp_path / "sum.onnx",
        "(float[past, 4] x, float[total, 4] z) => (float[past, 4] u, float[total, 4] v) { u = Relu(x) v = Relu(z) }",
    )
    model = onnx.load(path)
    for info in (model.graph.input[1], model.graph.output[1]):
        info.type.tensor_type.shape.dim[0].dim_param = "past + 1"
    onnx.save(model, path)
    assert bind(path, ["x:3,4", "z:4,4"]).values == ({"past": 3},)
    with pytest.raises(UserError, match=r"dimension past \+ 1 is 4 by the other dimensions, not 9"):
        bind(path, ["x:3,4", "z:9,4"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y:1,2,4", "there is no such input; the inputs are x, mask, w"),
        ("x:1,2", r"declared as \[batch, seq, 4\]"),
        ("x:1,2,5", "only symbolic dimensions can be set"),
        ("x:1;2", "write it as NAME:1,128"),
        ("x:²", "write it as NAME:1,128"),
        ("x:" + "1" * 5000, "write it as NAME:1,128"),
    ],
)
def test_shapes_that_contradict_the_model_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        bind(write(tmp_path / "two.onnx", TWO), [text])


def test_what_is_left_open_is_chosen_as_the_model_accepts_and_said(tmp_path: Path) -> None:
    found = bind(transformer(tmp_path / "t.onnx", layers=1), ["auto"])
    assert found.shapes == {"ids": (1, 32)}, "128 and 64 are more than the table of 48 positions"
    assert "batch=1 (as the batch), sequence=32" in found.note


def test_a_static_model_has_nothing_to_bind(tmp_path: Path) -> None:
    found = bind(write(tmp_path / "s.onnx", "(float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"))
    assert found.inputs.is_static
    assert found.shapes == {}


def test_sums_of_symbols_follow_from_them(tmp_path: Path) -> None:
    text = '(float[batch, "past"] x, float[batch, "past + 1"] m) => (float[batch, 4] y) { y = Relu(x) }'
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g' + text.replace('"past"', "past").replace('"past + 1"', "total")
    )
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "past + 1"
    onnx.save(model, tmp_path / "sum.onnx")
    found = bind(tmp_path / "sum.onnx", ["x:1,7"])
    assert found.shapes == {"x": (1, 7), "m": (1, 8)}


def test_a_model_that_runs_with_no_usual_shape_asks_for_one(tmp_path: Path) -> None:
    path = write(tmp_path / "w.onnx", "(float[seq, k] x, float[5, 7] w) => (float[seq, 7] y) { y = MatMul(x, w) }")
    with pytest.raises(UserError, match=r"none of the usual shapes .*such as --shape x:"):
        bind(path)


@pytest.mark.parametrize(
    ("symbol", "place", "role"),
    [
        ("batch_size", Place("x", 1, 2), Role.BATCH),
        ("N", Place("x", 0, 4), Role.BATCH),
        ("s0", Place("x", 0, 2), Role.BATCH),
        ("s1", Place("x", 1, 2), Role.SEQUENCE),
        ("past_sequence_length", Place("k", 2, 4), Role.SEQUENCE),
        ("width", Place("x", 3, 4), Role.IMAGE),
        ("s2", Place("x", 2, 4), Role.IMAGE),
        ("x.1", Place("x", 1, 4), Role.CHANNELS),
    ],
)
def test_roles_follow_names_then_places(symbol: str, place: Place, role: Role) -> None:
    assert role_of(symbol, place) is role


def test_an_input_whose_rank_is_open_takes_the_shape_that_is_given(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[n, 2] x, float[2] z) => (float[n, 2] y) { y = Add(x, z) }'
    )
    model.graph.input[1].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "open.onnx")
    found = bind(tmp_path / "open.onnx", ["z:1,2", "x:4,2"])
    assert found.shapes == {"x": (4, 2), "z": (1, 2)}
    assert not found.inputs.is_static
    assert bind(tmp_path / "open.onnx").shapes == {"x": (1, 2)}, "what is missing is asked for when it is opened"
    problem, bindings = open_dynamic(tmp_path / "open.onnx", "z:1,2", "x:4,2")
    assert "number of dimensions of the input z" in generalise(problem, [], bindings).message


def test_usual_shapes_beside_inputs_that_numpy_files_do_not_hold(tmp_path: Path) -> None:
    """Texts, bfloat16 and float8 are written to a file and read again; a sequence is made beside it."""
    path = tmp_path / "model.onnx"
    model = parsed("""(float[batch,4] x, bfloat16[batch] h, float8e5m2[batch] q, string[batch] t, seq(float[2]) s)
        => (float[batch,4] y, float[batch] g, float[batch] p, string[batch] u, int64 n) {
            y = Neg(x)  g = Cast<to = 1>(h)  p = Cast<to = 1>(q)  u = Identity(t)  n = SequenceLength(s) }""")
    onnx.save(model, path)
    assert bind(path).shapes == {"x": (1, 4), "h": (1,), "q": (1,), "t": (1,)}
