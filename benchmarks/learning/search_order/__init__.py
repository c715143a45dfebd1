"""The order of a search by windows, replayed: how many timings it needs for most of what can be saved.

`orders` makes predictions out of other architectures, `replaying` searches with them in a table of windows, `scores`
compares, and `python -m benchmarks.learning.search_order` prints.
"""
