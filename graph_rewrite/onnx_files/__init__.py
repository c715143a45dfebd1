"""ONNX files: reading and writing them without loss, and bringing graphs into the form that search starts from.

`loading.load` reads a model, `saving.save` writes one, `normalisation.normalise` prepares a graph for rewriting, and
`assembly` builds small graphs by hand.
"""
