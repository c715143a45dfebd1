"""The repository's modules, their first-party imports, and the cycles among these.

Everything is read from the source text: nothing is imported, so an import inside a function or under
`if TYPE_CHECKING` counts as much as one at the top of a file.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

from tests.repository import ROOT

_BUILD = "setup.py"

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Import:
    """One first-party import: the importing module, the imported one, and where the statement stands."""

    importer: str
    imported: str
    line: int
    in_function: bool


@dataclass(frozen=True)
class Module:
    """A Python file of the repository under its dotted name; packages are named without `.__init__`."""

    name: str
    path: Path

    @property
    def file(self) -> str:
        """Return the path relative to the repository, as it is shown in messages."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def documented(self) -> Iterator[tuple[int, str, str]]:
        """Yield line, name and docstring of the module and of every class and function that has one."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Module, *_DEFINITIONS)) and (text := ast.get_docstring(node)) is not None:
                yield getattr(node, "lineno", 1), getattr(node, "name", self.name), text


def modules(*folders: str, scripts: bool = False) -> dict[str, Module]:
    """Return the modules below folders of the repository, and its scripts where asked for, by dotted name."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    if scripts:
        paths += [path for path in ROOT.glob("*.py") if path.name != _BUILD]
    found = {}
    for path in sorted(paths):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path)
    return found


def imports(sources: Mapping[str, Module]) -> list[Import]:
    """Return every import of one of these modules by another, once per line, in the order of files and lines."""
    found = {}
    for module in sources.values():
        for line, target, in_function in _statements(module, module.tree, False):
            # `from package import name` imports the module package.name where there is one, else package itself.
            imported = target if target in sources else target.rpartition(".")[0]
            if imported in sources and imported != module.name:
                found[Import(module.name, imported, line, in_function)] = None
    return list(found)


def _statements(module: Module, node: ast.AST, in_function: bool) -> Iterator[tuple[int, str, bool]]:
    """Yield line, imported name and nesting of the import statements below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name, in_function) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            source = _source(module, child)
            yield from ((child.lineno, f"{source}.{alias.name}", in_function) for alias in child.names)
        yield from _statements(module, child, in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def _source(module: Module, statement: ast.ImportFrom) -> str:
    """Return the absolute name of the module from which a statement imports."""
    if not statement.level:
        return statement.module or ""
    parts = module.name.split(".")
    above = statement.level - (module.path.name == "__init__.py")
    return ".".join([*parts[: len(parts) - above], *filter(None, [statement.module])])


def cycles_of_files(found: Sequence[Import]) -> list[list[Import]]:
    """Return cycles among files, each as the imports that close it."""
    return _cycles({(each.importer, each.imported): each for each in reversed(found)})


def cycles_of_siblings(found: Sequence[Import], package: str) -> list[list[Import]]:
    """Return cycles among the direct members of a package ("" for the top level), each as one import per step.

    An import between two modules counts for the members in which they lie, at any depth.
    """
    prefix = f"{package}." if package else ""
    steps = {}
    for each in reversed(found):
        if each.importer.startswith(prefix) and each.imported.startswith(prefix):
            step = tuple(name.removeprefix(prefix).partition(".")[0] for name in (each.importer, each.imported))
            if step[0] != step[1]:
                steps[step[0], step[1]] = each
    return _cycles(steps)


def _cycles(steps: Mapping[tuple[str, str], Import]) -> list[list[Import]]:
    """Return cycles that share no step; none exactly where every strongly connected component is a single node."""
    left, found = dict(steps), []
    while True:
        graph = defaultdict(set)
        for importer, imported in left:
            graph[importer].add(imported)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            # The error names each node before the one that needs it, and the first again at the end.
            nodes = error.args[1][::-1]
            found.append([left.pop(step) for step in pairwise(nodes)])
        else:
            return found
