"""The layout of the repository: imports without cycles, small packages."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.repository import PACKAGES
from tests.source_tree import Import, cycles_of_files, cycles_of_siblings, imports, modules

MODULES = modules(*PACKAGES, scripts=True)
TESTS = modules("tests")
IMPORTS = imports(MODULES)
EVERYTHING = {**MODULES, **TESTS}
SCRIPTS = {name for name in MODULES if "." not in name and name not in PACKAGES}

LARGEST_PACKAGE = 20


def shown(cycle: list[Import]) -> str:
    """Return a cycle as one line per import."""
    return "\n".join(f"  {MODULES[each.importer].file}:{each.line} imports {each.imported}" for each in cycle)


class TestCycles:
    def test_none_between_files(self) -> None:
        found = [shown(cycle) for cycle in cycles_of_files(IMPORTS)]
        assert not found, "Move what both need into a module below both:\n" + "\n\n".join(found)

    @pytest.mark.parametrize("package", ["", *(name for name in MODULES if MODULES[name].path.name == "__init__.py")])
    def test_none_between_members_of_a_package(self, package: str) -> None:
        found = [shown(cycle) for cycle in cycles_of_siblings(IMPORTS, package)]
        where = package or "the top level"
        assert not found, f"Members of {where} need each other; decide which is lower:\n" + "\n\n".join(found)

    def test_none_between_tests(self) -> None:
        found = cycles_of_files(imports(TESTS))
        assert not found, f"Helpers of tests need each other: {found}"

    def test_found_where_there_is_one(self) -> None:
        cycle = [Import("a.x", "b.y", 1, False), Import("b.z", "c", 2, True), Import("c", "a.w", 3, False)]
        one_way = [Import("a.x", "a.w", 1, False), Import("b.z", "b.y", 2, False)]
        assert cycles_of_files([*cycle, *one_way]) == []
        [found] = cycles_of_siblings([*cycle, *one_way], "")
        assert sorted(found, key=lambda each: each.line) == cycle


class TestSizes:
    def test_packages_are_small(self) -> None:
        sizes = Counter(module.path.parent for module in EVERYTHING.values())
        large = [f"{folder}: {count} files" for folder, count in sizes.items() if count > LARGEST_PACKAGE]
        assert not large, f"Divide packages with more than {LARGEST_PACKAGE} files: {large}"
