"""Make an ONNX file faster: python optimize.py model.onnx [model.optimized.onnx] --time-limit 120s"""

import sys

from agents.commands.optimize import main

if __name__ == "__main__":
    sys.exit(main())
