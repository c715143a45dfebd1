"""Rewrites of matrix products and linear layers: algebra, merges, Gemm, pointwise convolutions, Strassen's algorithm,
tables, and tiles."""
