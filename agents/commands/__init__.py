"""The command lines behind train.py, evaluate.py and the subcommands of `rewritegym`."""
