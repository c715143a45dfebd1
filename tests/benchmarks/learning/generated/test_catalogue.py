"""Generated networks: seeded, valid, and many."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.learning.generated.catalogue import FAMILIES, ZOO, generate, networks
from graph_rewrite.zoo.registry import configure


def test_there_are_enough_of_them_and_the_zoo_has_what_is_asked_of_it() -> None:
    found = networks()
    assert len({network.name for network in found}) == len(found)
    assert sum(bool(network.family) for network in found) >= 30
    for uri in ZOO:
        name, _, query = uri.partition("?")
        configure(name, dict(pair.split("=") for pair in query.split("&") if pair))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_network_runs_and_its_outputs_are_of_use(family: str, tmp_path: Path) -> None:
    path = generate(family, 3, tmp_path / "x.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {value.name: rng.standard_normal(value.shape, dtype=np.float32) for value in session.get_inputs()}
    (found,) = session.run(None, feeds)
    assert np.isfinite(found).all()
    assert 1e-3 < found.std() < 1e3
    again = generate(family, 3, tmp_path / "y.onnx")
    assert path.read_bytes() == again.read_bytes()
    assert {entry.key: entry.value for entry in onnx.load(path).metadata_props}["rewritegym.family"] == family


def test_seeds_differ(tmp_path: Path) -> None:
    drawn = {generate("encoder", seed, tmp_path / f"{seed}.onnx").read_bytes() for seed in range(4)}
    assert len(drawn) == 4
