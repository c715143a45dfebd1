"""Recorded results: replayed, and written as known results."""
