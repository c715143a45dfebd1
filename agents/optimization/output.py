"""The output file of an optimisation, checked before any time is spent."""

from __future__ import annotations

from pathlib import Path

from graph_rewrite.errors import UserError


def default_output(path: Path) -> Path:
    """Return the file that a result is written to where none is named: beside the input."""
    return path.with_name(f"{path.stem}.optimized.onnx")


def check_output(path: Path, output: Path, *, overwrite: bool) -> Path:
    """Return `output` where the result of the model file `path` may be written to it.

    Raises:
        UserError: the input itself, a folder that does not exist, or a file that must not be replaced.
    """
    if output.resolve() == path.resolve():
        raise UserError(f"{output} is the input: name another output file")
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no folder {output.parent}; make it first")
    if output.is_dir():
        raise UserError(f"{output} is a folder: name a file in it")
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists: name another output file, or replace it with --overwrite")
    return output
