"""MkDocs hooks: pages that the build generates, and links that leave docs/.

Generated pages are the command line's help, the API, and the catalogue of rules. The catalogue takes about 40 seconds,
so it is kept in build/docs under a digest of what it is made from. Pages and files of the repository outside docs/
(benchmarks, the changelog, examples) are added under their own paths where a page links to them.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import io
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:  # the tests import this module in environments without MkDocs
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "docs"
OUTSIDE = ("benchmarks/*.md", "CHANGELOG.md")
"""Pages that lie outside docs/ and belong to the site."""
CATALOGUE = ("rules.md", "rules-generated.md", "rules-taso.md", "rules-mutants.md")
CATALOGUE_SOURCES = (
    "graph_rewrite/**/*.py", "graph_rewrite/rules/**/*.json", "graph_rewrite/mutate/**/*.json",
    "benchmarks/results/**/*.json",
)  # fmt: skip
PACKAGES = (
    "rewritegym", "graph_rewrite", "graph_rewrite.latency", "graph_rewrite.egraph", "envs",
    "agents",
)  # fmt: skip
"""Packages with a page in the API reference: the public entrances."""
COMMANDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("optimize.py, rewritegym optimize", "agents.commands.optimize", ()),
    ("rewritegym apply", "agents.commands.apply", ()),
    ("rewritegym check", "agents.commands.check", ()),
    ("rewritegym report", "agents.commands.report", ()),
    ("rewritegym inspect", "graph_rewrite.inspection.cli", ()),
    ("train.py, rewritegym train", "agents.commands.train", ()),
    ("evaluate.py, rewritegym evaluate", "agents.commands.evaluate", ()),
    *(
        (f"rewritegym rules {name}", "graph_rewrite.rulebook.cli", (name,))
        for name in ("list", "show", "explain", "verify", "coverage", "import", "generate", "catalogue")
    ),
    *(
        (f"rewritegym experience {name}", "agents.commands.experience", (name,))
        for name in ("stats", "export", "merge", "learn")
    ),
    ("rewritegym zoo", "graph_rewrite.zoo.__main__", ()),
    ("rewritegym doctor", "rewritegym.doctor", ()),
    ("python -m graph_rewrite egraph extract", "graph_rewrite.egraph.cli", ("extract",)),
    *(
        (f"python -m benchmarks.{name}", f"benchmarks.{name}", ())
        for name in (
            "results",
            "time_limits",
            "env_speed",
            "soak",
            "recordings.replay",
            "rules.rule_lists",
            "latency.window_meter",
            "learning.collect_experience",
        )
    ),
    *(
        (f"python -m benchmarks.{name}", f"benchmarks.{name}.__main__", ())
        for name in ("figures", "headroom", "papers")
    ),
)
"""Title, module with `main(argv)`, and subcommand of every command whose help is shown."""
WIDTH = "100"

_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")


# --- pages ---


def generated() -> dict[str, Callable[[], str]]:
    """Return the makers of all generated pages, by path below docs/."""
    pages: dict[str, Callable[[], str]] = {
        "reference/commands.md": commands,
        "reference/configuration.md": configuration,
    }
    pages |= {f"reference/api/{name}.md": lambda name=name: api(name) for name in PACKAGES}
    pages |= {f"reference/{name}": lambda name=name: catalogue()[name] for name in CATALOGUE}
    return pages


def commands() -> str:
    """Return the page with the help of every command."""
    parts = ["# Command line", "`rewritegym COMMAND --help` prints the same in a terminal."]
    for title, module, arguments in COMMANDS:
        parts += [f"## {title}", f"```text\n{help_of(module, arguments)}\n```"]
    return "\n\n".join(parts) + "\n"


def configuration() -> str:
    """Return the page of the settings: the defaults with their comments, and the fields of the configuration."""
    defaults = (ROOT / "configs" / "default.yaml").read_text("utf-8")
    return "\n\n".join(
        [
            "# Configuration",
            "Settings of a YAML file, or of `--set SECTION.FIELD=VALUE`. "
            "[Training](../rl/training.md#configuration) tells in which order they are merged.",
            "## configs/default.yaml",
            f"```yaml\n{defaults.strip()}\n```",
            "## Fields",
            "::: agents.core.config\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"
            "      heading_level: 3\n      show_root_full_path: false",
        ]
    )


def help_of(module: str, arguments: Sequence[str]) -> str:
    """Return what a command prints for --help."""
    out, words = io.StringIO(), [*arguments, "--help"]
    terminal = {"COLUMNS": WIDTH, "NO_COLOR": "1"}
    main = import_module(module).main
    with (
        mock.patch.dict(os.environ, terminal),
        mock.patch.object(sys, "argv", [f"python -m {module}", *words]),
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),
    ):
        main(words) if inspect.signature(main).parameters else main()
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def api(package: str) -> str:
    """Return the page of a package: its docstring, and the names in its `__all__`."""
    names = exported(package)
    parts = [f"# {package}", f"::: {package}\n    options:\n      members: false\n      show_root_heading: false"]
    parts += [f"::: {package}.{name}" for name in names]
    return "\n\n".join(parts) + "\n"


def exported(package: str) -> list[str]:
    """Return the names in a package's `__all__`, read without importing it; sub-packages are left out."""
    folder = ROOT.joinpath(*package.split("."))
    for statement in ast.parse((folder / "__init__.py").read_text("utf-8")).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "__all__":
            return [name for name in ast.literal_eval(statement.value) if not (folder / name).is_dir()]
    return []


@cache
def catalogue() -> dict[str, str]:
    """Return the catalogue's pages by name, from the cache where nothing that they are made from has changed."""
    folder = CACHE / f"rules-{digest(CATALOGUE_SOURCES)}"
    if not all((folder / name).exists() for name in CATALOGUE):
        from graph_rewrite.rulebook import catalogue as rulebook

        for stale in CACHE.glob("rules-*"):
            shutil.rmtree(stale)
        folder.mkdir(parents=True)
        rulebook.write(folder)
    return {name: (folder / name).read_text("utf-8") for name in CATALOGUE}


def digest(patterns: Iterable[str]) -> str:
    """Return a digest of the names and contents of all files that match."""
    found = hashlib.sha256()
    for file in sorted(file for pattern in patterns for file in ROOT.glob(pattern)):
        found.update(f"{file.relative_to(ROOT)}\0".encode())
        found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


# --- links ---


def relinked(markdown: str, source: str) -> str:
    """Return a page of the site whose links lead to files of the site.

    In the repository a page of docs/ links to `../../benchmarks/README.md`; on the site both lie below one folder.

    Args:
        markdown: the page's text.
        source: its path in the repository.
    """

    def replace(link: re.Match[str]) -> str:
        target, hash_, anchor = link[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[1]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        return posixpath.relpath(site_path(path), posixpath.dirname(site_path(source)) or ".") + hash_ + anchor

    pieces = _FENCED.split(markdown)
    return "".join(piece if piece.startswith("```") else _LINK.sub(replace, piece) for piece in pieces)


def site_path(path: str) -> str:
    """Return the path on the site of a file of the repository."""
    return path.removeprefix("docs/")


def linked_files(pages: Iterable[Path]) -> Iterator[Path]:
    """Yield the files outside docs/ that the pages link to, beside the pages of the site."""
    own = set(outside())
    for page in pages:
        for piece in _FENCED.split(page.read_text("utf-8")):
            for link in [] if piece.startswith("```") else _LINK.findall(piece):
                file = Path(os.path.normpath(page.parent / link.partition("#")[0]))
                if file.is_file() and file not in own and ROOT / "docs" not in file.parents:
                    yield file


def outside() -> list[Path]:
    """Return the site's pages that lie outside docs/."""
    return [file for pattern in OUTSIDE for file in sorted(ROOT.glob(pattern))]


# --- hooks ---


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, pages from outside docs/, and the files that pages link to."""
    from mkdocs.structure.files import File, InclusionLevel

    for name, make in generated().items():
        files.append(File.generated(config, name, content=make()))
    own = outside()
    tables = ROOT.glob("benchmarks/results/*/*.md")
    linked = set(linked_files([*own, *tables, *(ROOT / "docs").rglob("*.md")]))
    for found, level in ((own, InclusionLevel.INCLUDED), (sorted(linked), InclusionLevel.NOT_IN_NAV)):
        for file in found:
            name = file.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(file), inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links that leave docs/ lead to the files of the site."""
    name = page.file.src_uri
    return relinked(markdown, name if (ROOT / name).is_file() else f"docs/{name}")
