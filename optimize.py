"""Make an ONNX file faster: python optimize.py model.onnx [model.optimized.onnx] --time-limit 120s"""

import signal
import sys
import time

BEGAN = time.monotonic()  # the time limit counts imports too
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
if __name__ == "__main__" and hasattr(signal, "pthread_sigmask"):
    # Ctrl-C and SIGTERM wait until everything is imported, and `main` answers them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

from agents.commands.optimize import main  # noqa: E402

if __name__ == "__main__":
    status = main(began=BEGAN)
    for number in _SIGNALS:  # all is written: only the workers are still to be ended
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
