"""Runs a tutorial as a reader would, and puts in what is printed: `python -m tests.tutorial docs/extending/rule.md`.

Blocks are taken in order, in an empty folder:

- `python` whose first line is a comment with a file's name: that file
- `python` that begins with an indented method: the method is put into the file's class, in place of an older one
- any other `python`: executed; a `text` block after it is what it prints
- `console`: a line `$ python -m graph_rewrite ...` and what the command prints
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path

from graph_rewrite import __main__ as library

COMMAND = "$ python -m graph_rewrite "
WIDTH = "100"
_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def executed(page: str) -> str:
    """The page with the outputs that its blocks have now. Text after code that prints nothing stays."""
    steps = _Steps()
    with tempfile.TemporaryDirectory() as folder, chdir(folder), _reader(folder):
        return _BLOCK.sub(lambda block: steps.run(*block.groups()), page)


class _Steps:
    def __init__(self) -> None:
        self.file = Path()
        self.printed = ""

    def run(self, kind: str, body: str) -> str:
        """Carry out a block; returns it with its output."""
        if kind == "text":
            body, self.printed = self.printed or body, ""
        elif kind == "console":
            command = body.splitlines()[0]
            assert command.startswith(COMMAND), f"a tutorial can't run {command!r}"
            body = f"{command}\n{_lines(_printed_by_command(command.removeprefix(COMMAND).split()))}"
        elif body.startswith("# "):
            self.file = Path(body.splitlines()[0].removeprefix("# "))
            self.file.write_text(body, "utf-8")
        elif body.startswith("    def "):
            self.file.write_text(_with_method(self.file.read_text("utf-8"), body), "utf-8")
        else:
            self.printed = _printed_by(body)
        return f"```{kind}\n{body}```\n"


def _with_method(text: str, method: str) -> str:
    name = method.split("(")[0].removeprefix("    def ")
    old = re.search(rf"^    def {name}\(.*?(?=^    def |\Z)", text, re.MULTILINE | re.DOTALL)
    if old is not None:
        return text.replace(old.group(), method + "\n")
    return text.replace("    def target(", f"{method}\n    def target(")


def _printed_by_command(arguments: list[str]) -> str:
    return _captured(lambda: library.main(arguments))


def _printed_by(code: str) -> str:
    return _captured(lambda: exec(compile(code, "tutorial", "exec"), {"__name__": "tutorial"}))


def _captured(action: object) -> str:
    assert callable(action)
    # What an earlier step imported from the reader's files may have changed since.
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or os.devnull).parent == Path.cwd():
            del sys.modules[name]
    out = io.StringIO()
    with redirect_stdout(out):
        action()
    return out.getvalue()


def _lines(text: str) -> str:
    """Without the blank lines and the padding of tables."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


@contextmanager
def _reader(folder: str) -> Iterator[None]:
    """A terminal of fixed width, and a folder that Python imports from."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        page = Path(argument)
        page.write_text(executed(page.read_text("utf-8")), "utf-8")
