"""Train an agent on a model and optimise the model with it: python train.py --model bert"""

import sys

from agents.commands.train import main

if __name__ == "__main__":
    sys.exit(main())
