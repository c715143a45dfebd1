"""Measuring latency: what meters resolve, and the cost model against the clock."""
