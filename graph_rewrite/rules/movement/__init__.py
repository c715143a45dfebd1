"""Rewrites that move or merge operators which only move elements: Transpose, Reshape, Concat, Split, Slice, Gather, and
Pad."""
