"""Inputs for timing."""

from pathlib import Path

import numpy as np
import pytest

from graph_rewrite.runtime.ort_worker.feeds import ELEMENTS, FeedSpec, ModelInput, make_feeds
from graph_rewrite.runtime.ort_worker.patterns import ABSENT, disturbed

IDS = ModelInput("input_ids", "tensor(int64)", (1, 64))
MASK = ModelInput("attention_mask", "tensor(int64)", (1, 64))
KINDS = ModelInput("token_type_ids", "tensor(int32)", (1, 64))
IMAGE = ModelInput("x", "tensor(float)", (1, 3, 8, 8))
FLAGS = ModelInput("flags", "tensor(bool)", (5,))
BYTES = ModelInput("bytes", "tensor(uint8)", (100,))
HALF = ModelInput("half", "tensor(float16)", (4,))
EVERY = [IDS, MASK, KINDS, IMAGE, FLAGS, BYTES, HALF]


def test_types_shapes_and_ranges() -> None:
    feeds = make_feeds(EVERY, FeedSpec())
    assert {name: str(array.dtype) for name, array in feeds.items()} == {
        "input_ids": "int64", "attention_mask": "int64", "token_type_ids": "int32", "x": "float32", "flags": "bool",
        "bytes": "uint8", "half": "float16",
    }  # fmt: skip
    assert all(feeds[item.name].shape == item.shape for item in EVERY)
    assert feeds["input_ids"].min() >= 0
    assert 100 < feeds["input_ids"].max() < 1000
    assert set(feeds["attention_mask"].ravel()) == {1}
    assert set(feeds["token_type_ids"].ravel()) == {0, 1}


def test_seeded_by_name_not_by_order() -> None:
    one, other = make_feeds([IDS, IMAGE], FeedSpec(3)), make_feeds([IMAGE, IDS], FeedSpec(3))
    np.testing.assert_array_equal(one["x"], other["x"])
    np.testing.assert_array_equal(one["input_ids"], other["input_ids"])
    assert not np.array_equal(one["x"], make_feeds([IMAGE], FeedSpec(4))["x"])


def test_explicit_ranges() -> None:
    feeds = make_feeds([IDS, IMAGE], FeedSpec(input_ranges={"input_ids": (7, 8), "x": (0.0, 0.5)}))
    assert set(feeds["input_ids"].ravel()) == {7}
    assert 0 <= feeds["x"].min() <= feeds["x"].max() <= 0.5


def test_arrays_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "feeds.npz"
    np.savez(path, x=np.ones((1, 3, 8, 8), np.float32))
    spec = FeedSpec(npz=str(path))
    np.testing.assert_array_equal(make_feeds([IMAGE], spec)["x"], 1)
    with pytest.raises(ValueError, match=r"no array for input 'input_ids'; it has \['x'\]"):
        make_feeds([IDS], spec)
    with pytest.raises(ValueError, match=r"float32\[1, 3, 8, 8\].*float32\[1, 3, 9, 9\]"):
        make_feeds([ModelInput("x", "tensor(float)", (1, 3, 9, 9))], spec)
    before = spec.key
    np.savez(path, x=np.zeros((1, 3, 8, 8), np.float32))
    assert spec.key != before


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (ModelInput("x", "tensor(float)", ("batch", 3)), "'x' has symbolic dimensions"),
        (ModelInput("words", "seq(tensor(string))", (1,)), r"'words' is seq\(tensor\(string\)\)"),
        (ModelInput("list", "seq(tensor(float))", ()), "'list' is seq"),
    ],
)
def test_inputs_we_cannot_make(item: ModelInput, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_feeds([item], FeedSpec())


def test_json_round_trip() -> None:
    spec = FeedSpec(5, {"a": (0, 3)}, None)
    assert FeedSpec.from_json(spec.to_json()) == spec
    assert set(spec.to_json()) == {"seed", "input_ranges", "npz"}, "keys of measurements on disk stay"
    for other in (FeedSpec(1, {}, None, "ones"), FeedSpec(0, {}, "a.npz", "", 0)):
        assert FeedSpec.from_json(other.to_json()) == other


def test_strings_are_numerals_and_may_come_from_a_file(tmp_path: Path) -> None:
    words = ModelInput("words", "tensor(string)", (2,))
    made = make_feeds([words], FeedSpec(3))["words"]
    assert made.dtype == object
    assert all(isinstance(word, str) and word.isdigit() for word in made)
    assert made.tolist() == make_feeds([words], FeedSpec(3))["words"].tolist()
    np.savez(tmp_path / "a.npz", words=np.array(["some", "words"]))
    assert make_feeds([words], FeedSpec(npz=str(tmp_path / "a.npz")))["words"].tolist() == ["some", "words"]


class TestSequencesAndOptionals:
    SHAPES = FeedSpec(element_shapes={"s": (2, 3)})

    def test_a_sequence_has_some_different_tensors(self) -> None:
        made = make_feeds([ModelInput("s", "seq(tensor(float))", ())], self.SHAPES)["s"]
        assert [element.shape for element in made] == [(2, 3)] * ELEMENTS
        assert all(element.dtype == np.float32 for element in made)
        assert len({element.tobytes() for element in made}) == ELEMENTS > 1
        again = make_feeds([ModelInput("s", "seq(tensor(float))", ())], self.SHAPES)["s"]
        assert [one.tolist() for one in made] == [one.tolist() for one in again]

    @pytest.mark.parametrize("element", ["int64", "string", "bool", "bfloat16"])
    def test_of_any_element_type(self, element: str) -> None:
        made = make_feeds([ModelInput("s", f"seq(tensor({element}))", ())], self.SHAPES)["s"]
        assert [one.shape for one in made] == [(2, 3)] * ELEMENTS

    def test_optional_values_are_there_unless_left_out(self) -> None:
        items = [
            ModelInput("s", "optional(tensor(float))", (2, 3)),
            ModelInput("o", "optional(seq(tensor(int64)))", ()),
        ]
        spec = FeedSpec(element_shapes={"s": (2, 3), "o": (4,)})
        made = make_feeds(items, spec)
        assert made["s"].shape == (2, 3)
        assert [one.shape for one in made["o"]] == [(4,)] * ELEMENTS
        left_out = make_feeds([*items, IMAGE], FeedSpec(pattern=ABSENT, element_shapes=spec.element_shapes))
        assert (left_out["s"], left_out["o"]) == (None, None)
        assert left_out["x"].shape == (1, 3, 8, 8)

    def test_patterns_hold_within_sequences(self) -> None:
        spec = FeedSpec(pattern="ones", element_shapes={"s": (2, 3)})
        made = make_feeds([ModelInput("s", "seq(tensor(float))", ())], spec)["s"]
        assert all((element == 1).all() for element in made)
        assert [one.shape for one in disturbed(made)] == [(2, 3)] * ELEMENTS
        assert disturbed(None) is None

    def test_beside_arrays_from_a_file_they_are_random(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", x=np.ones((1, 3, 8, 8), np.float32))
        items = [IMAGE, ModelInput("s", "seq(tensor(float))", ())]
        made = make_feeds(items, FeedSpec(npz=str(tmp_path / "x.npz"), element_shapes={"s": (2, 3)}))
        assert (made["x"] == 1).all()
        assert len(made["s"]) == ELEMENTS

    def test_without_a_shape_and_of_maps_none_can_be_made(self) -> None:
        with pytest.raises(ValueError, match=r"'s' is seq.*declares no fixed shape"):
            make_feeds([ModelInput("s", "seq(tensor(float))", ())], FeedSpec())
        with pytest.raises(ValueError, match=r"'m' is seq\(map"):
            make_feeds([ModelInput("m", "seq(map(int64,tensor(float)))", ())], FeedSpec())

    def test_json_round_trip_with_shapes(self) -> None:
        assert FeedSpec.from_json(self.SHAPES.to_json()) == self.SHAPES
        assert self.SHAPES.key != FeedSpec().key
