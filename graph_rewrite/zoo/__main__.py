"""``python -m graph_rewrite.zoo``: list the models, or export one and print the path of its ONNX file."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.extras import is_installed


def main(arguments: list[str] | None = None, prog: str = "rewritegym zoo") -> int:
    """List or export models; ``prog`` is how the command was called. Returns 0, or 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog=prog, description="List or export the zoo's models.")
    parser.add_argument("model", nargs="?", help="model to export; without it, all are listed")
    parser.add_argument("params", nargs="*", metavar="name=value", help="parameters to set, e.g. layers=2")
    options = parser.parse_args(arguments)
    if options.model is None:
        Console().print(_table())
        return 0
    return run_command(lambda: _export(options.model, options.params))


def _export(model: str, params: list[str]) -> int:
    print(zoo.export(model, **_parse(params)))
    return 0


def _table() -> Table:
    counted = is_installed("torch")
    table = Table("model", "parameters", "defaults")
    for name in zoo.all_names():
        settings = " ".join(f"{param}={value}" for param, value in zoo.defaults(name).items())
        count = f"{zoo.parameter_count(name) / 1e6:.2f} M" if counted else "needs PyTorch"
        table.add_row(name, count, settings)
    return table


def _parse(params: list[str]) -> dict[str, str]:
    pairs = [param.partition("=") for param in params]
    if malformed := [name for name, equals, _ in pairs if not equals]:
        raise UserError(f"parameters are given as name=value, got {malformed[0]!r}")
    return {name: value for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main(prog="python -m graph_rewrite.zoo"))
