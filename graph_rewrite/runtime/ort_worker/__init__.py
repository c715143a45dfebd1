"""The worker process that runs models, and what it shares with its parent: requests, plans, deployments, feeds.

A leaf: its modules import numpy, onnxruntime and each other (relatively), nothing else. The worker is started as the
top-level package `ort_worker`; the parent imports the same files as `graph_rewrite.runtime.ort_worker`. Only JSON
crosses the pipe, so the two never meet as different classes.
"""
