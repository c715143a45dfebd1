"""Search by windows: rewrites are tried in small subgraphs around their sites, and the best ones are put together."""
