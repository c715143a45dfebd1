"""A look at a model before it is optimised: what it holds, where its time goes, and what RewriteGym can do with it.

`facts` reads the file, `blocks` finds what repeats, `profile` runs the model in ONNX Runtime, `roofline` compares its
time with what the machine can do. `inspect` puts these together, `display` shows them, and `cli` is the command.
"""

from graph_rewrite.inspection.inspect import Inspection, inspect_model

__all__ = ["Inspection", "inspect_model"]
