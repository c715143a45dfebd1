"""Cold runs: searches that know nothing of each other, and controls without a search."""
