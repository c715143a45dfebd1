"""Models of effects: what a rewrite saves in a window, predicted from the window and the rewrite.

`samples` takes them out of a table of windows, `plain` makes plain features of them, `networks` are the models,
`training` trains them, and `model` stores and applies what was trained. PyTorch is needed by all but `samples` and
`plain`.
"""
