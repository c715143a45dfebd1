"""PPO with a GAT encoder over the meta-graph, after X-RLflow (sections 3.3.4 and 3.4)."""
