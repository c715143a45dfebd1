"""The networks that experience is collected from: variants of the zoo, and generated networks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning.generated import images, regions, sequences
from benchmarks.learning.generated.builder import NamedTensor, NetworkBuilder

FAMILIES: dict[str, Callable[[NetworkBuilder], NamedTensor]] = {
    "nas-cells": images.nas_cells, "residual": images.residual, "inverted": images.inverted,
    "branches": images.branches, "dense": images.dense, "decoder": images.decoder, "encoder": sequences.encoder,
    "mixer": sequences.mixer, "temporal": sequences.temporal, "recurrent": sequences.recurrent,
    "hybrid": sequences.hybrid, "packed": sequences.packed, "rolled": regions.rolled,
    "pyramid": regions.pyramid, "enlarging": images.enlarging,
}  # fmt: skip
"""The generators, by family."""
PER_FAMILY = 4
"""Generated networks of each family; encoders, cells, rolled images, pyramids and networks that enlarge images have
twice as many."""
_TWICE = ("encoder", "nas-cells", "packed", "rolled", "pyramid", "enlarging")

ZOO = (
    "bert-tiny", "bert-tiny?seq_len=32", "bert-tiny?seq_len=256&hidden=256&heads=4", "bert-tiny?batch=4",
    "bert?layers=2", "bert?layers=2&seq_len=384", "bert?layers=3&hidden=512&heads=8&seq_len=64",
    "vit?layers=2", "vit?layers=2&image_size=384", "vit?layers=3&hidden=384&heads=6&patch=8&image_size=112",
    "dalle?layers=2", "dalle?layers=2&batch=2", "transformer-transducer?layers=2",
    "nasrnn", "nasrnn?steps=3&hidden=256", "nasrnn?batch=8", "squeezenet", "squeezenet?image_size=160",
    "mobilenet-v2", "mobilenet-v2?width_percent=50&image_size=160", "mobilenet-v2?width_percent=140",
    "resnet18", "resnet18?image_size=128", "resnet18?width=32", "resnet18?batch=4&image_size=112",
    "resnet50?stage3=2", "resnet50?image_size=128&stage3=3", "resnext50?stage3=2",
    "resnext50?groups=16&width_per_group=8&stage3=2&image_size=160",
    "inception-v3", "inception-v3?width_percent=50", "inception-v3?image_size=160&grid17=2",
    "nasnet-a?cells=1&filters=1056&image_size=224", "nasnet-a?cells=2&filters=768&image_size=128",
    "vgg19?image_size=96", "vgg19?width=32&image_size=160&hidden=512", "csrnet?image_size=160",
    "csrnet?width=32", "resnet3d18?frames=8", "resnet3d18?width=32&image_size=64",
)  # fmt: skip
"""Models of the zoo at their published sizes where these are small, and at other widths, depths, resolutions, lengths
and batches."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network to search: `uri` in the zoo, or a family and a seed of the generators."""

    name: str
    family: str = ""
    seed: int = 0

    def uri(self, folder: Path) -> str:
        """Return where the network is found; a generated one is written into `folder` if it is not there."""
        if not self.family:
            return self.name
        path = folder / f"{self.name.replace('/', '-')}.onnx"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            generate(self.family, self.seed, path)
        return f"file:{path}"


def generate(family: str, seed: int, path: Path) -> Path:
    """Write the network of a family that a seed stands for."""
    unique = int(hashlib.sha256(f"{family}/{seed}".encode()).hexdigest()[:8], 16)
    net = NetworkBuilder(unique)
    return net.save(FAMILIES[family](net), path, family, f"generated/{family}/{seed}")


def networks() -> list[Network]:
    """Return all networks, a variant of the zoo and a generated one in turn, so that any first part is a mixture."""
    drawn = [
        Network(f"{family}/{seed}", family, seed)
        for seed in range(2 * PER_FAMILY)
        for family in FAMILIES
        if seed < PER_FAMILY or family in _TWICE
    ]
    zoo = [Network(f"zoo://{uri}") for uri in ZOO]
    mixed: list[Network] = []
    for number in range(max(len(zoo), len(drawn))):
        mixed += [*zoo[number : number + 1], *drawn[number : number + 1]]
    return mixed
