"""Means of what steps save in a file, with those of kinds of machines beyond them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from agents.effects.step_means import StepMeans
from graph_rewrite.errors import UserError
from graph_rewrite.system.atomic_files import replace_file

SHIPPED = Path(__file__).with_name("step-means.json.xz")
"""The means that ship; `python -m benchmarks.learning.step_means` makes them."""
FORMAT, VERSION = "rewritegym.step-means", 5
_COMPRESSED = ".xz"


def save_means(path: Path, means: StepMeans, by_kind: Mapping[str, StepMeans] = MappingProxyType({})) -> None:
    """Write means as lines of JSON, the same bytes for the same means; compressed where the name of the file ends with
    `.xz`. The first line has the means and lists the kinds of machines, each of which has one of the lines behind it: a
    search reads one of them.

    Args:
        by_kind: what steps save beyond them, by the kind of machine (`graph_rewrite.latency.device.machine_kind`).

    Raises:
        OSError: the file cannot be written.
    """
    kinds = sorted(by_kind)
    whole = {"format": FORMAT, "version": VERSION, "kinds": kinds, **means.to_json()}
    lines = (whole, *(by_kind[kind].to_json() for kind in kinds))
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    replace_file(path, lzma.compress(text.encode()) if path.suffix == _COMPRESSED else text)


def load_means(path: Path, kind: str = "") -> StepMeans:
    """Read means, with what is known of a kind of machine. Of a runtime other than ONNX Runtime on an unknown processor
    that is what it saves on another one.

    Raises:
        UserError: there are none, or they are of another format or a later version.
    """
    try:
        stored = path.read_bytes()
        first, *others = (lzma.decompress(stored) if path.suffix == _COMPRESSED else stored).splitlines()
        values = json.loads(first)
        if values["format"] != FORMAT or values["version"] != VERSION:
            raise UserError(f"{path}: these means are of another format: update RewriteGym, or learn them anew")
        means, kinds = StepMeans.from_json(values), list(values["kinds"])
        nearest = _nearest(kinds, kind)
        if nearest not in kinds:
            return means
        return means.extended(StepMeans.from_json(json.loads(others[kinds.index(nearest)])))
    except OSError as error:
        raise UserError(f"{path}: no means of steps can be read there: {error.strerror}") from error
    except (AttributeError, LookupError, TypeError, ValueError, EOFError, lzma.LZMAError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: this holds no means of steps: {error!r}") from error


def _nearest(kinds: Iterable[str], kind: str) -> str:
    """Return the kind of machine whose means count for another: itself, or one of the same runtime."""
    runtime, on, _ = kind.partition(" on ")
    alike = sorted(one for one in kinds if on and one.startswith(runtime + on))
    return alike[0] if alike and kind not in alike else kind
