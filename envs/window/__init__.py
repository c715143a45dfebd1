"""The environments of windows: `rewritegym/WindowRewrite-v0` times them, `rewritegym/WindowTable-v0` looks them up.

`env` and `problems` are the first one. `table` is a table of windows, states, steps and what these saved; `tabulation`
makes it out of the store of experience, `joining` makes one of several, and `table_env` plays it.
"""

from envs.window.env import WindowRewriteEnv, WindowRewriteOptions
from envs.window.table import WindowTable
from envs.window.table_env import WindowTableEnv

__all__ = ["WindowRewriteEnv", "WindowRewriteOptions", "WindowTable", "WindowTableEnv"]
