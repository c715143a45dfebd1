"""PyTorch's compiler as a peer: compiled in a process of its own, opened out of its cache, with frozen weights."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from benchmarks.peers import PEERS
from graph_rewrite import zoo
from graph_rewrite.system.extras import is_installed
from tests.benchmarks.peers.planted import check_outputs

TINY = {
    "bert": {"layers": 1, "hidden": 32, "heads": 2, "seq_len": 16, "vocab": 100, "positions": 32},
    "resnet18": {
        "image_size": 32, "width": 8, "stage1": 1, "stage2": 1, "stage3": 1, "stage4": 1, "classes": 10,
    },
}  # fmt: skip


@pytest.mark.slow  # the C++ compiler takes seconds for a file
@pytest.mark.skipif(not is_installed("torch"), reason="PyTorch is not installed: pip install 'rewritegym[bench]'")
@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("model", TINY if os.environ.get("REWRITEGYM_FULL_ZOO") else ["bert"])
def test_outputs_are_those_of_the_exported_file(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config  # needs PyTorch

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    params = TINY[model]
    path = zoo.export(model, **params)
    contestant = PEERS["inductor"](path, tmp_path, 1)
    cache = Path(contestant.options["cache"])
    compiled = set(cache.rglob("*.so"))
    assert compiled
    inputs = [dict(zoo.example_inputs(model, input_seed=seed, **params)) for seed in (1, 2)]
    with config.patch({"freezing": False, "compile_threads": 1}):  # restored at the end
        check_outputs(contestant, path, inputs)
        assert config.freezing
    assert set(cache.rglob("*.so")) == compiled, "the code was compiled again"
