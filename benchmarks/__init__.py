"""Programs that reproduce the figures in the README and in benchmarks/."""
