"""The graph: nodes, values, tensor types, constants, and edits.

`Graph` and `Node` are the data; `GraphEditor` makes a new graph out of an old one; `Constant` is a tensor known before
run time. This package knows no operator's semantics: it imports nothing of the project but `errors`.
"""
