"""Rewrites of attention: its core as one operator and back, in blocks of queries, and its masks."""
