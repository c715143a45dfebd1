"""Means of effects, and their validation on families that were left out, on labels whose effects are known."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.errors import UserError
from graph_rewrite.experience.means import MeanEffects, class_of_nodes, keys, shape_class
from graph_rewrite.experience.records import Label, complete
from graph_rewrite.experience.validation import ValidationScore, leave_one_family_out, most_precise, spearman
from tests.graph_rewrite.experience.rows import made_up

EFFECTS = {"A": 0.3, "B": 0.1, "C": -0.2, "D": 0.02, "E": -0.6}


def _label(number: int = 0, **row: object) -> Label:
    label, parts = made_up(number, **row)  # type: ignore[arg-type]
    (found,) = complete(iter([label]), {part.id: json.loads(part.text) for part in parts})
    return found


def _labels(noise: float, families: str = "fgh", by_shape: bool = False) -> list[Label]:
    """Return labels of windows of 2 ms in which each rule saves a known share, half of that on large shapes."""
    rng = np.random.default_rng(0)
    found = []
    for family in families:
        for number, size in enumerate((8, 16, 32, 512, 1024, 2048)):
            for rule, effect in EFFECTS.items():
                share = effect * (0.5 if by_shape and size > 100 else 1.0) + noise * rng.standard_normal()
                label = _label(
                    number, rules=(rule,), family=family, saved=2 * 2e-3 * share, shape=(1, size + ord(family)),
                    model=family,
                )  # fmt: skip
                found.append(label)
    return found


def test_known_effects_are_learnt_and_hold_in_families_that_were_not_seen() -> None:
    scores = leave_one_family_out(_labels(0.01))
    assert set(scores) == {"", "f", "g", "h"}
    whole = scores[""]
    assert whole.labels == 90
    assert whole.spearman > 0.95
    assert whole.error < 0.05 < 0.15 < whole.constant_error
    assert whole.best_among_top == 1.0
    assert whole.windows == 18
    assert whole.covered > 0.9


@pytest.mark.parametrize(
    ("groups", "channels", "said"),
    [
        (1, 64, "Conv 1 6 4"),
        (64, 64, "Conv depthwise 1 6 4"),
        (8, 64, "Conv groups of 3 1 6 4"),
        (64, 192, "Conv groups of 2 1 8 4"),
    ],
)
def test_classes_of_shapes_tell_how_many_channels_a_group_has(groups: int, channels: int, said: str) -> None:
    nodes = [("Relu", {}, (2, 64, 16)), ("Conv", {"group": groups}, (2, channels, 16))]
    assert class_of_nodes(nodes) == said


@pytest.mark.parametrize("batch", [1, 64])
def test_a_depthwise_convolution_is_one_at_any_batch(batch: int) -> None:
    label = _label(op="Conv", attrs={"group": 32}, shape=(batch, 32, 7, 7))
    assert shape_class(label) == f"Conv depthwise {int(math.log2(batch))} 5 3 3"


def test_families_are_left_out_in_parts() -> None:
    seen = []

    def fit(known: Sequence[Label]) -> MeanEffects:
        seen.append({label.family for label in known})
        return MeanEffects().learn(known)

    labels = _labels(0.01, families="fghij")
    scores = leave_one_family_out(labels, fit, folds=2)
    assert seen == [{"g", "i"}, {"f", "h", "j"}]
    assert set(scores) == {"", *"fghij"}
    assert scores[""].labels == len(labels)
    seen.clear()
    leave_one_family_out(labels, fit, folds=99)
    assert len(seen) == 5


def test_labels_without_effects_are_not_predicted() -> None:
    rng = np.random.default_rng(1)
    labels = [
        _label(n, rules=("ABCDE"[n % 5],), family="fgh"[n % 3], saved=float(rng.standard_normal()) * 1e-3)
        for n in range(150)
    ]
    assert abs(leave_one_family_out(labels)[""].spearman) < 0.3


def test_a_class_of_shapes_is_told_from_another() -> None:
    means = MeanEffects().learn(_labels(0.0, by_shape=True))
    small, large = (
        means.predict(_label(rules=("A",), shape=(1, size)))[0] for size in (8 + ord("f"), 2048 + ord("f"))
    )  # fmt: skip
    assert small == pytest.approx(0.3, abs=0.08)
    assert large == pytest.approx(0.15, abs=0.08)
    assert small - large > 0.05


def test_a_single_label_is_drawn_towards_what_is_more_general() -> None:
    means = MeanEffects().learn([_label(n, rules=("A",), saved=4e-3 * 0.1) for n in range(50)])
    means.learn([_label(rules=("A",), saved=4e-3 * 0.5, shape=(1, 4096))])
    expected, deviation = means.predict(_label(rules=("A",), shape=(1, 4096)))
    assert 0.1 < expected < 0.5
    assert deviation > means.predict(_label(rules=("A",)))[1]


def test_nothing_known_is_nothing_expected_and_much_doubted() -> None:
    assert MeanEffects().predict(_label()) == (0.0, 1.0)


def test_failed_labels_teach_nothing() -> None:
    label = _label()
    body = {name: value for name, value in label.body.items() if name in ("place", "steps", "context")}
    failed = Label("", 0, {**body, "status": "failed"}, *(getattr(label, n) for n in Label.__slots__[3:]))
    assert MeanEffects().learn([failed]).predict(label) == (0.0, 1.0)
    assert most_precise([failed]) == []


def test_of_several_timings_the_most_precise_counts() -> None:
    rough, exact = _label(saved=1e-3), _label(saved=2e-3)
    body = {**exact.body, "low_s": 2e-3 - 1e-6, "high_s": 2e-3 + 1e-6}
    exact = Label("exact", 0, body, *(getattr(exact, n) for n in Label.__slots__[3:]))
    assert most_precise([rough, exact]) == most_precise([exact, rough]) == [exact]


def test_means_are_kept() -> None:
    means = MeanEffects().learn(_labels(0.01))
    text = json.dumps(means.to_json())
    again = MeanEffects.from_json(text)
    label = _label(rules=("A",))
    assert again.predict(label) == means.predict(label)
    assert json.dumps(again.to_json()) == text
    for wrong in ("[]", "{}", "oops", '{"format":"rewritegym.means","version":99}'):
        with pytest.raises(UserError, match="means"):
            MeanEffects.from_json(wrong)


def test_keys_go_from_special_to_general() -> None:
    label = _label(rules=("A", "B"))
    assert keys(label) == [f"A > B | {shape_class(label)}", "A > B", "... > A > B", "... > B", ""]


def test_one_family_cannot_be_left_out() -> None:
    with pytest.raises(UserError, match="two families"):
        leave_one_family_out(_labels(0.0, families="f"))


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=12), st.randoms())
def test_spearman_by_its_definition(values: list[int], random: object) -> None:
    others = list(values)
    random.shuffle(others)  # type: ignore[attr-defined]
    one, other = np.array(values, float), np.array(others, float)

    def ranks(x: np.ndarray) -> np.ndarray:
        return np.array([(x < v).sum() + ((x == v).sum() + 1) / 2 for v in x])

    found = spearman(one, other)
    if len(set(values)) == 1:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(np.corrcoef(ranks(one), ranks(other))[0, 1])
        assert spearman(one, one**3) == pytest.approx(1.0)


def test_a_score_is_plain_json() -> None:
    score = ValidationScore(0, float("nan"), 0.0, 0.0, 0.0, 0, float("nan"))
    assert json.loads(json.dumps(score.to_json(), allow_nan=False))["spearman"] is None
