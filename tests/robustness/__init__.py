"""Optimisations that are killed, or asked to end, at any moment, and the files and processes that they leave."""
