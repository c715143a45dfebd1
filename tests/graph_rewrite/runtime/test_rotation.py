"""Inputs in turn: how many there are, how much memory they take, and which ones a model accepts."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.runtime import FeedSpec, Rotation, recipes_key
from graph_rewrite.runtime.ort_worker.feeds import Feeds, ModelInput, make_feeds
from graph_rewrite.runtime.ort_worker.rotating.pair import RotationPair
from graph_rewrite.runtime.ort_worker.rotating.recipes import as_recipes, recipes_from_json, recipes_to_json
from graph_rewrite.runtime.ort_worker.rotating.rotation import BYTES, FEWEST, LARGE_TOKENS, MOST_TOKENS, TOKEN_BYTES

IDS = ModelInput("input_ids", "tensor(int64)", (1, 128))
MASK = ModelInput("attention_mask", "tensor(int64)", (1, 128))
IMAGE = ModelInput("x", "tensor(float)", (1, 3, 8, 8))
VOCABULARY = {"input_ids": (0, 30522)}


def different(rotation: Rotation, name: str) -> int:
    return len({value.tobytes() for value in rotation.values[name]})


def image(megabytes: int, name: str = "x", kind: str = "float") -> ModelInput:
    return ModelInput(name, f"tensor({kind})", (megabytes << (20 if kind == "uint8" else 18),))


class TestRandomInputs:
    def test_all_turns_differ_and_the_first_is_the_one_of_the_seed(self) -> None:
        spec = FeedSpec(3, VOCABULARY)
        rotation = Rotation([IDS, IMAGE], spec)
        assert different(rotation, "input_ids") == rotation.count == MOST_TOKENS
        assert different(rotation, "x") == FEWEST
        for name, array in make_feeds([IDS, IMAGE], spec).items():
            np.testing.assert_array_equal(rotation.feeds(0, [IDS, IMAGE])[name], array)

    def test_they_are_reproducible(self) -> None:
        one, other = (Rotation([IDS, IMAGE], FeedSpec(3, VOCABULARY)) for _ in range(2))
        for number in (0, 5, 255, 256, -1):
            for name, array in one.feeds(number, one.inputs).items():
                np.testing.assert_array_equal(other.feeds(number, one.inputs)[name], array)
        assert one.feeds(-1, one.inputs)["x"] is one.feeds(255, one.inputs)["x"]

    def test_tokens_look_up_more_rows_than_a_vocabulary_has(self) -> None:
        rows = np.concatenate(Rotation([IDS], FeedSpec(0, VOCABULARY)).values["input_ids"], axis=None)
        assert len(rows) > 30522
        assert len(np.unique(rows)) > 0.6 * 30522  # 1 - 1/e of the vocabulary, drawn as often as it has words

    @pytest.mark.parametrize("length", [1, 128, 1 << 14, 1 << 18])
    def test_any_indices_change_at_least_eight_times_within_memory(self, length: int) -> None:
        ids = ModelInput("ids", "tensor(int64)", (length,))
        rotation = Rotation([ids], FeedSpec(0, {"ids": (0, 1 << 40)}))
        assert different(rotation, "ids") == rotation.count >= FEWEST
        assert rotation.nbytes() <= max(TOKEN_BYTES, FEWEST * 8 * length)

    def test_indices_that_sweep_the_caches_alone_are_bounded_as_others_are(self) -> None:
        ids = ModelInput("ids", "tensor(int64)", (2 * LARGE_TOKENS // 8,))
        assert Rotation([ids], FeedSpec(0, {"ids": (0, 1000)})).nbytes() <= BYTES

    def test_what_is_always_the_same_is_held_once(self) -> None:
        spec = FeedSpec(0, {"one": (1, 2)}, values={"fixed": 7})
        one, fixed = (ModelInput(name, "tensor(int64)", (4,)) for name in ("one", "fixed"))
        rotation = Rotation([MASK, one, fixed], spec)
        assert [len(values) for values in rotation.values.values()] == [1, 1, 1]
        assert rotation.count == 1

    def test_only_the_named_inputs_change(self) -> None:
        rotation = Rotation([IDS, IMAGE], FeedSpec(0, VOCABULARY, rotated=("input_ids",)))
        assert (different(rotation, "input_ids"), len(rotation.values["x"])) == (MOST_TOKENS, 1)
        assert Rotation([IDS, IMAGE], FeedSpec(0, VOCABULARY, rotated=())).count == 1

    def test_sequences_and_optional_values_change_too(self) -> None:
        rotation = Rotation([ModelInput("s", "seq(tensor(float))", ())], FeedSpec(element_shapes={"s": (2,)}))
        assert len({value[0].tobytes() for value in rotation.values["s"]}) == FEWEST
        copied = rotation.copy().values["s"][1]
        np.testing.assert_array_equal(copied, rotation.values["s"][1])
        assert not np.shares_memory(copied[0], rotation.values["s"][1][0])


class TestMemory:
    @pytest.mark.parametrize(("megabytes", "turns"), [(3, 8), (9, 3), (20, 1), (40, 1)])
    def test_large_inputs_are_fewer(self, megabytes: int, turns: int) -> None:
        rotation = Rotation([image(megabytes, kind="uint8")], FeedSpec())
        assert rotation.count == turns
        assert rotation.nbytes() == turns * megabytes << 20 <= max(BYTES, megabytes << 20)

    @settings(max_examples=5, deadline=None)
    @given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    def test_all_of_a_model_together_are_bounded(self, megabytes: list[int]) -> None:
        inputs = [image(size, f"x{number}", "uint8") for number, size in enumerate(megabytes)]
        rotation = Rotation([*inputs, IDS], FeedSpec(0, VOCABULARY))
        assert rotation.nbytes() <= max(BYTES, sum(megabytes) << 20) + TOKEN_BYTES
        assert different(rotation, "input_ids") == MOST_TOKENS  # whatever else there is

    def test_users_inputs_are_as_many_as_fit(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "data.npz", x=np.arange(5, dtype=np.uint8)[:, None] * np.ones(10 << 20, np.uint8))
        specs = [FeedSpec(npz=str(tmp_path / "data.npz"), item=item) for item in range(5)]
        rotation = Rotation([image(10, kind="uint8")], specs)
        assert [int(value[0]) for value in rotation.values["x"]] == [0, 1, 2]
        assert all(value.base is None for value in rotation.values["x"])  # no view that keeps the file's array

    def test_a_pair_makes_them_once_and_each_side_has_its_own(self, tmp_path: Path) -> None:
        pair = RotationPair()
        one, other = pair.of([IDS, IMAGE], FeedSpec(0, VOCABULARY))
        assert pair.of([IDS, IMAGE], FeedSpec(0, VOCABULARY)) == (one, other)
        assert (pair.last(0), pair.last(1)) == (one, other)
        for number in range(one.count):
            for name, value in one.feeds(number, [IDS, IMAGE]).items():
                twin = other.feeds(number, [IDS, IMAGE])[name]
                np.testing.assert_array_equal(value, twin)
                assert not np.shares_memory(value, twin)
        assert pair.of([IDS], FeedSpec(1, VOCABULARY))[0] is not one

    def test_a_file_that_changed_is_read_again(self, tmp_path: Path) -> None:
        pair, spec = RotationPair(), FeedSpec(npz=str(tmp_path / "x.npz"))
        for value in (1.0, 2.0):
            np.savez(tmp_path / "x.npz", x=np.full((1, 3, 8, 8), value, np.float32))
            assert pair.of([IMAGE], spec)[1].values["x"][0].max() == value


class TestUsersInputs:
    def test_they_are_taken_in_their_order(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", input_ids=np.arange(3 * 128).reshape(3, 128))
        np.savez(tmp_path / "b.npz", input_ids=np.full((1, 128), 7))
        specs = [FeedSpec(npz=str(tmp_path / "a.npz"), item=item) for item in range(3)]
        rotation = Rotation([IDS], [*specs, FeedSpec(npz=str(tmp_path / "b.npz"))])
        assert [rotation.feeds(turn, [IDS])["input_ids"][0, 0] for turn in range(5)] == [0, 128, 256, 7, 0]

    def test_one_alone_stays_one(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "b.npz", input_ids=np.full((1, 128), 7))
        assert Rotation([IDS], FeedSpec(npz=str(tmp_path / "b.npz"))).count == 1


class TestIntegersOfUnknownMeaning:
    """They may be lengths or divisors: what the model fails on does not pass for a fault of a candidate later."""

    STEPS = ModelInput("steps", "tensor(int64)", (1,))

    def values(self, accepted: list[int] | None) -> list[int]:
        made = [int(make_feeds([self.STEPS], FeedSpec(seed))["steps"][0]) for seed in range(FEWEST)]

        def accepts(feeds: Feeds) -> bool:
            return made.index(int(feeds["steps"][0])) in (accepted or ())

        found = Rotation([self.STEPS], FeedSpec(), None if accepted is None else accepts).values["steps"]
        return [made.index(int(value[0])) for value in found]

    def test_those_that_the_model_fails_on_are_left_out(self) -> None:
        assert self.values(list(range(FEWEST))) == list(range(FEWEST))
        assert self.values([0, 2, 5]) == [0, 2, 5]
        assert self.values([0]) == [0]

    def test_where_it_fails_on_the_first_or_is_not_asked_there_is_one(self) -> None:
        assert self.values([]) == self.values([3]) == self.values(None) == [0]

    def test_a_model_is_not_asked_for_indices(self) -> None:
        def accepts(_: Feeds) -> bool:
            raise AssertionError("run")

        assert Rotation([IDS, IMAGE, MASK], FeedSpec(0, VOCABULARY), accepts).count == MOST_TOKENS


class TestRecipes:
    def test_json_and_keys(self) -> None:
        specs = (FeedSpec(1, VOCABULARY), FeedSpec(2, rotated=("x",)), FeedSpec(3, rotated=()))
        assert recipes_from_json(recipes_to_json(specs)) == specs
        assert recipes_from_json(specs[0].to_json()) == specs[:1]
        assert len({recipes_key(spec) for spec in (*specs, specs)}) == 4
        assert recipes_key(specs[0]) != specs[0].key, "what was stored before inputs rotated"

    def test_at_least_one_is_needed(self) -> None:
        with pytest.raises(ValueError, match="at least one recipe"):
            as_recipes(())
