"""Code that opens a model as a deployment says, in its runtime alone, without RewriteGym."""

from __future__ import annotations

import os
from pathlib import Path

from graph_rewrite.runtime import Deployment, runtime_of


def deployment_code(deployment: Deployment, path: str | os.PathLike[str]) -> dict[str, str]:
    """Return code that opens the model file `path` in its runtime as `deployment` says.

    Each text makes an object `session`. It sets only what differs from the runtime's defaults, and the number of
    threads.

    Returns:
        The code by language: `python`, `cpp`, and with ONNX Runtime `csharp`.
    """
    return runtime_of(deployment.provider).code(deployment, Path(path).as_posix())
