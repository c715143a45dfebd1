"""Optimise a model with several agents at an equal budget: python evaluate.py --model bert --agents ppo greedy"""

import sys

from agents.commands.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
