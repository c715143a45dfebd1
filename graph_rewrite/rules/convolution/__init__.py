"""Rewrites of convolutions and pools: fast algorithms, merges, other shapes of images, and constants absorbed into
filters."""
