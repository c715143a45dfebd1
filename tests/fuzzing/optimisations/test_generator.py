"""Random models: valid, the same for the same seed, and of many kinds."""

from __future__ import annotations

import random

import hypothesis
import numpy as np
import onnx
from hypothesis import given

from tests.fuzzing.optimisations.builder import BATCH
from tests.fuzzing.optimisations.generator import RandomModel, models, random_model
from tests.fuzzing.optimisations.running import largest_magnitude, opened


@given(models())
@hypothesis.settings(max_examples=20)
def test_hypothesis_draws_models_that_run(model: RandomModel) -> None:
    onnx.checker.check_model(model.proto)
    batch = 3
    session = opened(model.proto)
    assert np.isfinite(largest_magnitude(session, model.feeds(5, 1.0, batch)))
    for info in session.get_inputs():
        assert all(isinstance(dim, int) or dim == BATCH for dim in info.shape)


def test_a_seed_tells_a_model() -> None:
    texts = [random_model(random.Random(seed)).proto.SerializeToString() for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_models_differ_in_types_shapes_and_structure() -> None:
    drawn = [random_model(random.Random(seed)) for seed in range(100)]
    inputs = [given.value for model in drawn for given in model.inputs]
    assert len({value.dtype for value in inputs}) >= 5
    assert {value.rank for value in inputs} >= {1, 2, 3, 4}
    assert any(model.is_symbolic for model in drawn)
    assert any(len(model.proto.graph.output) > 1 for model in drawn)
    assert any(model.proto.functions for model in drawn)
    assert any(len(readers) > 1 for model in drawn for readers in _readers(model).values())
    assert len({model.proto.opset_import[0].version for model in drawn}) >= 5


def _readers(model: RandomModel) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in model.proto.graph.node:
        for name in node.input:
            found.setdefault(name, []).append(node.name)
    return found
