"""The output file of an optimisation, checked before any time is spent, and written at the end."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agents.optimization.outcome import Optimization
from graph_rewrite.delivery.bundles.manifest import check_replaceable
from graph_rewrite.errors import UserError


def default_output(path: Path, *, bundle: bool = False) -> Path:
    """Return the file that a result is written to where none is named, or the folder of a bundle: beside the input."""
    return path.with_name(f"{path.stem}.optimized{'' if bundle else '.onnx'}")


def check_output(path: Path, output: Path, *, overwrite: bool, bundle: bool = False, dry: bool = False) -> Path:
    """Return `output` where the result of the model file `path` may be written to it.

    Args:
        bundle: the result is a bundle, and `output` its folder.
        dry: nothing will be written.

    Raises:
        UserError: the input itself, a folder that does not exist or that nothing can be written to, or a file that must
            not be replaced.
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
    if not bundle:
        check_regular(output, str(output))
    if output.exists() and not (overwrite or dry):
        raise UserError(
            f"{output} exists: name another output {'folder' if bundle else 'file'}, or replace it with --overwrite"
        )
    if not dry:
        check_writable(output.parent, str(output))
    return output


def check_regular(path: Path, name: str) -> None:
    """Raise UserError where a path is a device, a pipe or a socket: writing a file there would replace it."""
    if path.exists() and not path.is_file():
        raise UserError(f"{name} is no regular file: name another")


def check_writable(folder: Path, name: str) -> None:
    """Raise UserError where no file can be made in a folder; `name` is what would be written there."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror}; name a file in another folder") from error


def saved(outcome: Optimization, output: Path) -> Path | None:
    """Save an outcome as `Optimization.save` does. Where its folder cannot be written to any more, or is full, save it
    in a new temporary folder, so that the search is not lost.

    Raises:
        UserError: the outcome is not where it should be; the message says where it is.
    """
    try:
        return outcome.save(output)
    except OSError as error:
        failure = f"{output} cannot be written: {error.strerror or error}"
    other = Path(tempfile.mkdtemp(prefix="rewritegym-result-")) / output.name
    try:
        outcome.save(other)
    except OSError as error:
        raise UserError(f"{failure}; nor can {other}: {error.strerror or error}") from error
    raise UserError(f"{failure}; the result is saved as {other} instead")
