"""Tasks: a model by URI, its rewriter, its meter, the limits of a result, and the folder for temporary models.

Environments and agents are built on `open_problem` and share what it opens.
"""
