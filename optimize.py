"""Make an ONNX file faster: python optimize.py model.onnx [model.optimized.onnx] --time-limit 120s"""

import sys

from graph_rewrite.system.program_start import program_began
from graph_rewrite.system.signals import hold_signals, ignore_signals

if __name__ == "__main__":
    hold_signals()  # until everything is imported; `main` answers them

from agents.commands.optimize import main

if __name__ == "__main__":
    status = main(began=program_began())
    ignore_signals()
    sys.exit(status)
