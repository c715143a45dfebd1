"""The exact semantics of operators, and the evaluation of graphs by them.

The semantics of an operator is a function from its call (`call.Call`: attributes and input tensors over a domain of
numbers) to its outputs. `standard` and `contrib` are the tables, `lookup` finds an operator in them, and `evaluation`
runs whole graphs.
"""
