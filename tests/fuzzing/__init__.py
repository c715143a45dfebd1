"""Damaged and hostile models, and the check that loading answers each with a graph or with a clear error."""
