"""Proposals: an operator at a time, how its free inputs and attributes may be chosen for a source graph."""
