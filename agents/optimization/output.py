"""The output file of an optimisation, checked before any time is spent."""

from __future__ import annotations

from pathlib import Path

from graph_rewrite.delivery.bundles.manifest import check_replaceable
from graph_rewrite.errors import UserError


def default_output(path: Path, *, bundle: bool = False) -> Path:
    """Return the file that a result is written to where none is named, or the folder of a bundle: beside the input."""
    return path.with_name(f"{path.stem}.optimized{'' if bundle else '.onnx'}")


def check_output(path: Path, output: Path, *, overwrite: bool, bundle: bool = False) -> Path:
    """Return `output` where the result of the model file `path` may be written to it.

    Args:
        bundle: the result is a bundle, and `output` its folder.

    Raises:
        UserError: the input itself, a folder that does not exist, or a file that must not be replaced.
    """
    if output.resolve() == path.resolve():
        raise UserError(f"{output} is the input: name another output file")
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no folder {output.parent}; make it first")
    if bundle and output.suffix == ".onnx":
        raise UserError(f"{output}: --specialise writes a folder of models; name it without .onnx")
    if bundle:
        check_replaceable(output)
    elif output.is_dir():
        raise UserError(f"{output} is a folder: name a file in it")
    if output.exists() and not overwrite:
        raise UserError(
            f"{output} exists: name another output {'folder' if bundle else 'file'}, or replace it with --overwrite"
        )
    return output
