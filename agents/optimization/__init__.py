"""Optimise a model from beginning to end: open it, search, check and write. The command line and `rewritegym.optimize`
share it."""
