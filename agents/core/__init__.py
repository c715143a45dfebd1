"""The parts of every agent: problem, budget and result, the end of a search, configuration, cost model, registry."""
