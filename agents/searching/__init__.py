"""Parts of a search that several agents share: known starts, the cost model, deployment choices, session settings."""
