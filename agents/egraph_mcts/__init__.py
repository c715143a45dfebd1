"""MCTS over the construction of an e-graph (Hartmann et al., PACT'24)."""
