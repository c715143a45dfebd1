"""Dynamic shapes: a model whose inputs have symbolic dimensions is searched at one binding of them, and the rewrites
that were found are carried over to all others.

`bindings` fixes symbolic dimensions, `lanes` holds a model at several bindings, `carrying` applies recorded rewrites
to all of them at once, `plans` and `emission` write what differs between them in terms of the inputs' shapes, and
`generalise` does all of this and checks the result.
"""
