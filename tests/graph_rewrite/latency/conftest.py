"""Small measurable models, and meters whose lock is not the machine's: these tests check behaviour, not speed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite.latency import OrtMeter, Plan
from tests.graph_rewrite import faulty_models

QUICK = Plan(min_pairs=2, max_pairs=4, budget_s=0.1)
QUICK_FULL = Plan(instances=3, min_instances=2, min_pairs=2, max_pairs=3, budget_s=0.2)


@dataclass(frozen=True)
class Model:
    """A model under a name that serves as its hash; `layers` convolutions unless `content` says otherwise."""

    hash: str
    layers: int = 1
    disabled_optimizers: frozenset[str] = frozenset()
    content: bytes | None = None
    session_settings: tuple[tuple[str, bool | int | str], ...] = ()


def materialize(model: Any, folder: Path) -> Path:
    path = folder / f"{model.hash}.onnx"
    path.write_bytes(faulty_models.convolutions(model.layers) if model.content is None else model.content)
    return path


@pytest.fixture
def model() -> type[Model]:
    return Model


@pytest.fixture
def contents() -> dict[str, bytes]:
    """Models that must fail, and how."""
    return faulty_models.contents()


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    return tmp_path / "measure.lock"


@pytest.fixture
def make_meter(tmp_path: Path, lock_path: Path) -> Iterator[Callable[..., OrtMeter]]:
    """Makes meters with quick plans against a model of two convolutions, and closes them."""
    made: list[OrtMeter] = []

    def make(baseline: Model = Model("baseline", 2), writer: Any = materialize, **options: Any) -> OrtMeter:
        options = {"workspace": tmp_path, "screen": QUICK, "full": QUICK_FULL, "lock_path": lock_path, **options}
        made.append(OrtMeter(baseline, writer, **options))
        return made[-1]

    yield make
    for meter in made:
        meter.close()
