"""The optimizer: mutants of mutants, by the prices of their operators (PET, algorithm 2)."""
