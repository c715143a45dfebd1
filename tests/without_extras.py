"""Python processes in which the optional libraries cannot be imported, as if they were not installed."""

from __future__ import annotations

import os
from pathlib import Path

from graph_rewrite.system.extras import LIBRARIES

_HOOK = """\
import sys
from importlib.abc import MetaPathFinder

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""


def refusing(folder: Path, *modules: str) -> dict[str, str]:
    """Return environment variables under which Python cannot import these modules; all optional ones by default.

    `folder` is where the hook is written: a module that the interpreter imports as it starts.
    """
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_HOOK.format(modules=set(modules or LIBRARIES)), encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
