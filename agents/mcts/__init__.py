"""Monte Carlo tree search: `tree` is the search itself, `guide` what it knows beforehand, `agent` the optimiser."""
