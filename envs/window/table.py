"""A table of windows: their states, the steps that were timed in each, and what these saved.

A window is a tree. Its root is the window before any rewrite; a step leads to a state of its own, however it is
reached. States hold the graph and the replacements of their steps as rows of numbers, so that the table is read without
any rule, model or runtime. It is one `.npz` file: arrays, and a JSON text `header`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from envs.feature_sets import CONTEXT, INSTRUCTIONS, FeatureSet, feature_widths
from envs.observation import ObservationLimits
from graph_rewrite.errors import UserError
from graph_rewrite.latency.device import instruction_sets
from graph_rewrite.system.atomic_files import replace_file

FORMAT, VERSION = "rewritegym.windows", 3
SHIPPED = Path(__file__).with_name("windows.npz")
"""The table that comes with the package; docs/rl/windows.md has its data card."""
FEATURES: FeatureSet = "full"
"""The feature set of a table's observations."""

ARRAYS = {
    "row_op": np.int16, "row_features": np.float32, "row_attributes": np.float32, "shapes": np.float32,
    "context": np.float32,
    "node_start": np.int32, "node_row": np.int32, "node_owner": np.int16,
    "edge_start": np.int32, "edge_source": np.int16, "edge_target": np.int16, "edge_shape": np.int32,
    "step_start": np.int32, "step_rule": np.int16, "step_family": np.int16, "step_features": np.float32,
    "step_details": np.float32, "step_share": np.float32, "step_half": np.float32, "step_failed": np.bool_,
    "step_next": np.int32, "step_measured": np.bool_, "step_guess": np.float32, "step_class": np.int32,
    "step_cost": np.float32,
    "state_window": np.int32, "state_depth": np.int16, "state_share": np.float32, "window_root": np.int32,
    "window_context": np.int32,
}  # fmt: skip
"""The arrays and their types.

row_*: a row for each distinct node; shapes: one for each distinct shape of an edge; context: one for each machine and
deployment. node_*, edge_*: nodes and edges of all states one after another, `*_start` is where each state begins, with
one entry more at the end; node_owner is 0 for the graph and k + 1 for the replacement of step k. step_*: the steps of
all states; step_share is the share of the window's time that the chain saves with the step, step_half half of its 95%
interval, step_next the state that it leads to; step_measured is false where the chain was not timed with this step as
its last one, but with later ones: then it counts as saving what it saves without the step. step_guess is the share that
the step saves by a count of operations and bytes, step_class the number in `classes`, step_cost the seconds that the
timing took. state_share: what the chain of a state saves.
"""


@dataclass(frozen=True, slots=True)
class WindowRecord:
    """A window of a table, as its header describes it."""

    family: str
    """Architecture of the model that it is of."""
    model: str
    """URI of the model, or name of the generated network; empty for others."""
    fingerprint: str
    """Of its structure."""
    seconds: float
    """Seconds that it takes before any rewrite."""
    weight: float
    """Largest share of a model's time that its sites take together, at most 1."""
    chains: int
    """Chains that were timed in it."""
    exhaustive: bool
    """Every step that its first steps made possible was timed; told only of windows with many chains."""
    device: str = ""
    """The machine that it was timed on (`graph_rewrite.latency.device.device_name`); empty where that is not known."""
    provider: str = "cpu"
    """The provider that it was timed with."""


@dataclass(frozen=True)
class WindowTable:
    """A table of windows.

    Args:
        windows: what each window is.
        rules: names of the rules, by their number in `step_rule`.
        families: names of the rules' families, by their number in `step_family`.
        arrays: `ARRAYS` by name.
        limits: the sizes to which the largest observation is padded.
        classes: texts that are equal for steps that work alike, by their number in `step_class`
            (`graph_rewrite.experience.means.shape_class`).
    """

    windows: tuple[WindowRecord, ...]
    rules: tuple[str, ...]
    families: tuple[str, ...]
    arrays: Mapping[str, NDArray[Any]]
    limits: ObservationLimits
    classes: tuple[str, ...] = ("",)

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.arrays["state_window"])

    @property
    def steps(self) -> int:
        """Number of steps that were timed, those that failed included."""
        return len(self.arrays["step_rule"])

    def parents(self) -> NDArray[np.int64]:
        """Return the state that a step leads from to each state, int64 [states]; -1 for the roots of windows."""
        found = np.full(self.states, -1, dtype=np.int64)
        found[self.arrays["step_next"]] = self.step_states()
        return found

    def step_states(self) -> NDArray[np.int64]:
        """Return the state that each step is a step of, int64 [steps]."""
        return np.repeat(np.arange(self.states), np.diff(self.arrays["step_start"]))

    def state_halves(self) -> NDArray[np.float64]:
        """Return half of the 95% interval of what the chain of each state saves, float64 [states]; 0 for roots."""
        found = np.zeros(self.states)
        found[self.arrays["step_next"]] = self.arrays["step_half"]
        return found

    def measured_states(self) -> NDArray[np.bool_]:
        """Return which states have a timing of their own, bool [states]; roots have one."""
        found = np.ones(self.states, dtype=np.bool_)
        found[self.arrays["step_next"]] = self.arrays["step_measured"]
        return found

    def best_shares(self, shares: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return the largest share that is saved in each state or by any chain that begins with its chain.

        Args:
            shares: what the chain of each state is credited with; by default what was measured.
        """
        best = (self.arrays["state_share"] if shares is None else shares).astype(np.float64)
        start, after = self.arrays["step_start"], self.arrays["step_next"]
        failed = self.arrays["step_failed"]
        for state in range(self.states - 1, -1, -1):  # steps lead to states with larger numbers
            for step in range(start[state], start[state + 1]):
                if not failed[step]:
                    best[state] = max(best[state], best[after[step]])
        return best

    def header(self) -> dict[str, Any]:
        """Plain values of all that is no array."""
        return {
            "format": FORMAT, "version": VERSION, "features": FEATURES, "widths": _widths(),
            "rules": list(self.rules), "families": list(self.families), "classes": list(self.classes),
            "limits": [self.limits.max_candidates, self.limits.max_nodes, self.limits.max_edges],
            "windows": [
                {name: getattr(window, name) for name in WindowRecord.__slots__} for window in self.windows
            ],
        }  # fmt: skip

    def save(self, path: Path) -> None:
        """Write the table as a whole or not at all; the same bytes for the same table.

        Raises:
            OSError: the file cannot be written.
        """
        text = json.dumps(self.header(), sort_keys=True, separators=(",", ":"))
        stream = io.BytesIO()
        arrays: dict[str, Any] = {name: self.arrays[name] for name in ARRAYS}
        np.savez_compressed(stream, header=np.frombuffer(text.encode(), np.uint8), **arrays)
        replace_file(path, stream.getvalue())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a table.

        Raises:
            UserError: there is no such file, it is no table of windows, or one of a later version or of other features.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                header = json.loads(bytes(stored["header"]).decode())
                if header["format"] != FORMAT:
                    raise UserError(f"{path}: this is no table of windows")
                if header["version"] > VERSION or header["widths"] != _widths(header["version"]):
                    raise UserError(
                        f"{path}: this table has version {header['version']} or other features than this RewriteGym: "
                        "update RewriteGym, or make the table again from the experience"
                    )
                windows = tuple(WindowRecord(**values) for values in header["windows"])
                read = _upgraded(dict(stored), header["version"], windows)
                arrays: dict[str, NDArray[Any]] = {name: read[name].astype(kind) for name, kind in ARRAYS.items()}
                limits = ObservationLimits(*header["limits"])
        except UserError:
            raise
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"{path}: this is no table of windows: {error!r}") from error
        names = (tuple(header["rules"]), tuple(header["families"]))
        return cls(windows, *names, arrays, limits, tuple(header.get("classes", ("",))))


def _upgraded(
    arrays: dict[str, NDArray[Any]], version: int, windows: Sequence[WindowRecord]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a table of an earlier version as those of this one."""
    if version < 2:
        arrays = _of_first_version(arrays)
    return _with_instructions(arrays, windows) if version < 3 else arrays


def _with_instructions(arrays: dict[str, NDArray[Any]], windows: Sequence[WindowRecord]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a table of version 2 with what the processor of each window can do, by its name."""
    known = [instruction_sets(window.device) for window in windows]
    own = np.array([[float(name in sets) for name in INSTRUCTIONS] for sets in known]).reshape(-1, len(INSTRUCTIONS))
    rows, first = arrays["context"][arrays["window_context"]], CONTEXT.index(INSTRUCTIONS[0])
    context, numbers = np.unique(np.hstack([rows[:, :first], own, rows[:, first:]]), axis=0, return_inverse=True)
    return {**arrays, "context": context, "window_context": numbers.reshape(-1)}


def _of_first_version(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a table of version 1 with those that it lacks: all of its steps were timed, and nothing is
    known of their classes, estimates and costs."""
    steps = len(arrays["step_rule"])
    unknown = {name: np.zeros(steps) for name in ("step_guess", "step_class", "step_cost")}
    return {**arrays, **unknown, "step_measured": np.ones(steps)}


def _widths(version: int = VERSION) -> dict[str, int]:
    """Return the widths of the features that a table of a version holds."""
    widths = {name: width for name, width in feature_widths(FEATURES).items() if name != "families"}
    return widths if version >= 3 else {**widths, "context": widths["context"] - len(INSTRUCTIONS)}
