"""Predictions of what a rewrite saves in a window, before it is timed.

`step_means` are means by rules and shapes, which `learning_means` learns from tables of windows and `own_means` from
the searches of a machine. Models of effects see the window: `samples` takes states out of a table, `plain` makes
features of them, `networks` and `training` train models, `stored` keeps them and predicts without PyTorch, and `model`
predicts with it. `prior` brings both together for a search.
"""
