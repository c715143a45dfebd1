"""Model zoo: architectures with random, calibrated weights, exported to ONNX on demand and cached on disk.

    >>> from graph_rewrite import zoo
    >>> zoo.names()[:4]
    ['bert', 'bert-tiny', 'vit', 'dalle']
    >>> path = zoo.export("bert", layers=2, seq_len=256)   # zoo://bert?layers=2&seq_len=256

docs/reference/zoo.md describes them. Parameters are integers; ``defaults`` lists them, the modules of
``configs`` document them. BERT is exported as Hugging Face's eager implementation is with only ``input_ids``
given: all tokens attended to, no mask in the graph, all token types 0. ``attention_mask=1`` and ``token_type_ids=1``
make those two inputs of the graph. Convolutional models are exported in evaluation mode, with BatchNorm folded into the
convolutions by the exporter.

PyTorch is imported when a network is built, not for a model that is in the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from graph_rewrite.system.extras import require
from graph_rewrite.zoo.configs.common import Inputs, ModelConfig
from graph_rewrite.zoo.disk_cache import cached_folder, read_manifest
from graph_rewrite.zoo.registry import ARCHITECTURES, FURTHER, Architecture, architecture, configure, family_of, name_in

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "all_names",
    "build",
    "defaults",
    "example_inputs",
    "export",
    "family_of",
    "further_names",
    "name_in",
    "names",
    "origin",
    "parameter_count",
]

_MODEL_FILE = "model.onnx"
_EXPORTING_PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript")


def names() -> list[str]:
    """Return the names of the models on which tables are computed."""
    return list(ARCHITECTURES)


def further_names() -> list[str]:
    """Return the names of the models beside those of ``names``; every other function takes them as well."""
    return list(FURTHER)


def all_names() -> list[str]:
    """Return the names of all models: those of ``names``, then those of ``further_names``."""
    return [*names(), *further_names()]


def defaults(name: str) -> dict[str, int]:
    """Return the parameters of model ``name`` and their default values.

    Raises:
        UserError: unknown model.
    """
    return asdict(architecture(name).defaults)


def parameter_count(name: str, /, **params: int | str) -> int:
    """Return the number of trainable parameters, counted without allocating them; ``params`` as for ``export``.

    Raises:
        UserError: unknown model or parameter, or an invalid value.
        MissingLibraryError: PyTorch is not installed.
    """
    config = configure(name, params)
    require("Counting the parameters of a model", "torch")
    from graph_rewrite.zoo.building import count_parameters  # imports PyTorch, which takes seconds

    return count_parameters(name, config)


def build(name: str, /, **params: int | str) -> nn.Module:
    """Return the network in evaluation mode, float32, with its random weights; ``params`` as for ``export``.

    Raises:
        UserError: unknown model or parameter, or an invalid value.
        MissingLibraryError: PyTorch is not installed.
    """
    config = configure(name, params)
    require("Building a model of the zoo", "torch")
    from graph_rewrite.zoo.building import build_network  # imports PyTorch, which takes seconds

    return build_network(name, config)


def example_inputs(name: str, /, input_seed: int = 0, **params: int | str) -> Inputs:
    """Return random inputs by name that the exported model accepts (ids below the vocabulary's size, masks of 0 and 1).

    ``params`` are as for ``export``; their ``seed``, that of the weights, has no influence.

    Raises:
        UserError: unknown model or parameter, or an invalid value.
    """
    return configure(name, params).example_inputs(input_seed)


def export(name: str, /, **params: int | str) -> Path:
    """Return the path of the model as an ONNX file (opset 20, fixed shapes), exported if it is not in the cache yet.

    It lies in ``$REWRITEGYM_CACHE/zoo`` (default ``~/.cache/rewritegym/zoo``), in a folder of its own, with the weights
    beside it in one external data file if they exceed 100 MiB. Edits of the model's source and other versions of
    PyTorch and ONNX give other files. Safe to call from several processes at once.

    Args:
        name: one of ``names()`` or of ``further_names()``.
        params: parameters to set, see ``defaults(name)``; strings, as in a model URI, are read as decimal integers.

    Raises:
        UserError: unknown model or parameter, or an invalid value.
        MissingLibraryError: PyTorch or its exporter is not installed. The version of either is part of the cache's key,
            so that a model in the cache needs them as well.
        OSError: the cache cannot be written.
    """
    config = configure(name, params)
    require("Exporting a model of the zoo", "torch", "onnxscript")
    identity = _identity(name, config)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def create(folder: Path) -> None:
        # Here, as it imports PyTorch, which takes seconds and is not needed for a model in the cache.
        from graph_rewrite.zoo.building import export_network

        export_network(name, config, folder / _MODEL_FILE)

    return cached_folder(f"{name}-{digest}", create, identity) / _MODEL_FILE


def origin(path: str | os.PathLike[str]) -> tuple[str, dict[str, int]] | None:
    """Return the model and all its parameters of which ``path`` is the export.

    ``build`` makes the same network, with the same weights, from what is returned. None for any other file, and for an
    export by another version of the zoo or of the libraries that exported it: its weights may differ.

    Raises:
        MissingLibraryError: PyTorch or its exporter is not installed.
    """
    require("Recognising a model of the zoo", "torch", "onnxscript")
    try:
        recorded = read_manifest(Path(path).parent)
        name, params = recorded["model"], recorded["params"]
        config = configure(name, params)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no manifest, or one that `export` did not write
    known = Path(path).name == _MODEL_FILE and recorded.items() >= _identity(name, config).items()
    return (name, asdict(config)) if known else None


def _identity(name: str, config: ModelConfig) -> dict[str, object]:
    """Return all that decides an exported file."""
    return {
        "model": name,
        "params": asdict(config),
        "versions": {package: version(package) for package in _EXPORTING_PACKAGES},
        "network": architecture(name).network,
        "source": _source_digest(architecture(name)),
    }


@cache
def _source_digest(model: Architecture) -> str:
    """Return a digest of the source files that decide what is exported: the network's own module, all that networks
    share, their configurations, and the export.

    Networks import nothing from each other's modules, so that an edit of one leaves the files of the others valid. What
    the registry decides stands beside the digest. The package of the further models decides nothing about the others.
    """
    folder = Path(__file__).parent
    networks = {folder / entry.package / f"{entry.module}.py" for entry in (*ARCHITECTURES.values(), *FURTHER.values())}
    own = folder / model.package / f"{model.module}.py"
    modules = {path for name in ("architectures", "configs", model.package) for path in folder.glob(f"{name}/*.py")}
    deciding = [path for path in modules - networks | {own} if path.stem != "__init__"]
    digest = hashlib.sha256()
    for path in sorted([*deciding, folder / "building.py", folder / "exporter.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()
