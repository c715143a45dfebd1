"""``python -m rewritegym`` is the console script ``rewritegym``."""

import sys

from rewritegym.cli import main

sys.exit(main())
