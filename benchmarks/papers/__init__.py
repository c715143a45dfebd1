"""Tables of the papers beside ours: `python -m benchmarks.papers` writes them, docs/reference/reproductions.md shows
them.

`published/` holds what the papers report, with the section that reports it. Ours come from results files of the other
benchmarks; a table says which command measures them.
"""
