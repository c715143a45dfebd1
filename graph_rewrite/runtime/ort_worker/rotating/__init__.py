"""Runs with inputs in turn: recipes of them, the inputs themselves, and sessions that take the next ones."""
