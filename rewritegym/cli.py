"""The console script ``rewritegym``."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.system.commands import Command, Program
from rewritegym import __version__

COMMANDS = {
    "optimize": Command(
        "agents.commands.optimize", "make an ONNX file faster: rewritegym optimize model.onnx", timed=True
    ),
    "apply": Command(
        "agents.commands.apply", "apply the rewrites of an earlier result to retrained weights, without a search"
    ),
    "report": Command("agents.commands.report", "write the HTML report of a result whose JSON was kept"),
    "check": Command("agents.commands.check", "measure a result again, on this machine, against its original"),
    "inspect": Command("graph_rewrite.inspection.cli", "tell what a model holds, and where its time goes", timed=True),
    "train": Command("agents.commands.train", "train an agent on a model and write the optimised model"),
    "evaluate": Command("agents.commands.evaluate", "optimise a model with a trained agent and compare agents"),
    "experience": Command(
        "agents.commands.experience", "count, export or merge what searches have found out, or learn from it"
    ),
    "rules": Command("graph_rewrite.rulebook.cli", "list rules, show one, or explain where they nearly apply"),
    "zoo": Command("graph_rewrite.zoo.__main__", "list the model architectures, or export one to ONNX"),
    "doctor": Command("rewritegym.doctor", "print provider, CPU flags, versions, peak speed and noise of this machine"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status: its own, 2 for a wrong command, 130 after Ctrl-C."""
    return Program("rewritegym", COMMANDS, __version__).main(argv)
