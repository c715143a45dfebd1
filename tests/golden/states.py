"""Digests of three states of every zoo model, which a change of the code's structure must not change.

    python -m tests.golden.states --write        # the small variants, which the tests compare
    python -m tests.golden.states --full         # the published sizes, compared with the recorded ones; minutes
    python -m tests.golden.states --full --write

A state's record holds the graph's hash, the number of candidates per rule, and digests of the candidates' keys (in
their order), of the action mask and of every array of the observation. Weights are replaced by multiples of 1/8 that
depend on their names alone, so that calibrated weights, which differ from CPU to CPU, do not matter. Candidates depend
on the block of ONNX Runtime's NCHWc layout: the records hold for 16 channels (AVX-512).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
from onnx import numpy_helper

from envs import GraphRewriteEnv
from graph_rewrite import zoo
from tests.small_models import SMALL

FOLDER = Path(__file__).parent
BLOCK = 16
"""Channels in a block of the layout that the records hold for."""

STATES = 3
_SHARES = (1 / 3, 2 / 3)
"""Positions of the candidates that lead to the next states, as shares of the list of legal candidates."""


class _NeverAsked:
    """A meter for environments that do not measure."""

    measurements = 0

    def measure(self, graph: object, effort: str = "screen") -> Any:
        raise AssertionError("no step of a golden state is measured")

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        pass


def states_of(name: str, parameters: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the records of three states of a model: as normalised, and after one and two rewrites."""
    with tempfile.TemporaryDirectory() as folder:
        path = _with_plain_weights(zoo.export(name, **parameters), Path(folder))
        env = GraphRewriteEnv(
            f"file:{path}", meter=_NeverAsked(), provider="cpu", horizon=40, feedback_every=50, measure_last=False,
            max_candidates=512, max_nodes=16384, max_edges=32768,
        )  # fmt: skip
        observation, _ = env.reset(seed=0)
        found = [_record(env, observation)]
        for share in _SHARES:
            mask = env.action_masks()
            legal = [k for k, one in enumerate(env.candidates) if mask[k] and one.kind != "deployment"]
            if not legal:
                break
            observation, _, terminated, _, _ = env.step(legal[int(share * len(legal))])
            found.append(_record(env, observation))
            if terminated:
                break
        return found


def _with_plain_weights(path: Path, folder: Path) -> Path:
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 0:
            rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            plain = (rng.integers(1, 16, tuple(tensor.dims)) / 8).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(plain, tensor.name))
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.data")
    return folder / "model.onnx"


def _record(env: GraphRewriteEnv, observation: Mapping[str, Any]) -> dict[str, Any]:
    rules = Counter(candidate.rule for candidate in env.candidates)
    return {
        "hash": env.graph.hash,
        "candidates": len(env.candidates),
        "rules": dict(sorted(rules.items())),
        "keys": _digest("\n".join(candidate.key for candidate in env.candidates).encode()),
        "descriptions": _digest("\n".join(candidate.description for candidate in env.candidates).encode()),
        "mask": _digest(env.action_masks().tobytes()),
        "observation": {entry: _array_digest(array) for entry, array in sorted(observation.items())},
    }


def _array_digest(array: np.ndarray) -> str:
    # A logarithm may differ by one unit in the last place between builds of NumPy.
    rounded = np.round(array.astype(np.float64), 5) + 0.0 if array.dtype.kind == "f" else array
    return _digest(f"{array.dtype}{array.shape}".encode() + rounded.tobytes())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def recorded(full: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return the records in the file, by model."""
    found: dict[str, list[dict[str, Any]]] = json.loads(_file(full).read_text("utf-8"))
    return found


def _file(full: bool) -> Path:
    return FOLDER / ("states-full.json" if full else "states-small.json")


def main() -> None:
    """Write or compare the records."""
    parser = argparse.ArgumentParser(description="record or compare golden states")
    parser.add_argument("models", nargs="*", default=list(SMALL))
    parser.add_argument("--full", action="store_true", help="the published sizes")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    known = recorded(arguments.full) if _file(arguments.full).exists() else {}
    different = []
    for name in arguments.models:
        found = states_of(name, {} if arguments.full else SMALL[name])
        same = known.get(name) == found
        print(f"{name}: {[state['candidates'] for state in found]} candidates, {'same' if same else 'DIFFERENT'}")
        known[name] = found
        if not same:
            different.append(name)
    if arguments.write:
        _file(arguments.full).write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", "utf-8")
    elif different:
        raise SystemExit(f"different from the records: {', '.join(different)}")


if __name__ == "__main__":
    main()
