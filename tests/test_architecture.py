"""The layout of the repository: imports without cycles, small modules and packages, docstrings, unique class names."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict

import pytest

from tests.repository import PACKAGES
from tests.source_tree import Import, cycles_of_files, cycles_of_siblings, imports, modules

MODULES = modules(*PACKAGES, scripts=True)
TESTS = modules("tests")
IMPORTS = imports(MODULES)
EVERYTHING = {**MODULES, **TESTS}
SCRIPTS = {name for name in MODULES if "." not in name and name not in PACKAGES}

LONGEST_MODULE = 300
LARGEST_PACKAGE = 20

# Imports of our own modules inside functions, with the reason: importer, imported, reason. Either name stands for all
# modules below it as well.
LAZY_IMPORTS = (
    (
        "agents.commands.experience",
        "agents.effects.learning_means",
        "loads Gymnasium, which counting and merging do without",
    ),
    ("agents.commands", "agents.effects.tabulating", "loads Gymnasium, which the help does without"),
    ("agents.regional.prior", "agents.effects", "loads Gymnasium, which only this prior needs"),
    ("agents.regional.prior", "agents.universal", "PyTorch takes seconds to import, and need not be installed"),
    ("agents.commands", "agents.ppo", "PyTorch takes seconds to import, and need not be installed"),
    ("agents.commands", "agents.fine_tuning", "PyTorch takes seconds to import, and need not be installed"),
    ("agents.commands", "agents.policy_agent", "loads Gymnasium, which the help does without"),
    ("agents.policy_agent", "agents.ppo", "PyTorch takes seconds to import, which a draft does without"),
    ("agents.policy_agent", "agents.universal", "PyTorch takes seconds to import, which a draft does without"),
    ("agents.commands", "agents.universal", "PyTorch takes seconds to import, and need not be installed"),
    ("agents.commands", "agents.reporting.plots", "Matplotlib takes a second to import, and need not be installed"),
    ("benchmarks.env_speed", "agents", "only the timing of the policy needs PyTorch, which takes seconds to import"),
    ("graph_rewrite.zoo", "graph_rewrite.zoo.building", "a model in the cache is found without PyTorch"),
    ("graph_rewrite.egraph", "graph_rewrite.egraph.costs.kernels", "Numba takes a second to import"),
    ("graph_rewrite.egraph", "graph_rewrite.egraph.structure.kernels", "Numba takes a second to import"),
    ("graph_rewrite.egraph.extract", "graph_rewrite.egraph.extract.ilp", "only this method needs HiGHS"),
    ("graph_rewrite.soundness.verification.outcome", "graph_rewrite.soundness.verification", "z3 takes half a second"),
    ("rewritegym", "graph_rewrite.system.lazy_exports", "importing the package loads no other of ours"),
    ("rewritegym.doctor", "graph_rewrite.latency.noise", "the help needs no ONNX Runtime"),
)

# Names that several public classes bear, with the reason.
SHARED_NAMES = {
    "Arguments": "the command line of one program each",
    "Runner": "a model that is ready to run: in the worker that measures, and for the judge of a table",
    "EncoderLayer": "the layer of one network each; networks import nothing from each other",
}


def is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


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
    def test_modules_are_short(self) -> None:
        lengths = {module.file: len(module.text.splitlines()) for module in EVERYTHING.values()}
        long = [f"{file}: {count} lines" for file, count in lengths.items() if count > LONGEST_MODULE]
        assert not long, f"Split by subject what is longer than {LONGEST_MODULE} lines: {long}"

    def test_packages_are_small(self) -> None:
        sizes = Counter(module.path.parent for module in EVERYTHING.values())
        large = [f"{folder}: {count} files" for folder, count in sizes.items() if count > LARGEST_PACKAGE]
        assert not large, f"Divide packages with more than {LARGEST_PACKAGE} files: {large}"


# "Where(c, x, x) = x" is an equation that opens with an operator.
RIDDLE = re.compile(r"(What|Whether|Where|How|Which|Who|Of)\b(?!\()")


class TestDocstrings:
    def test_every_module_says_what_it_holds(self) -> None:
        silent = [
            f"{module.file}:1"
            for module in EVERYTHING.values()
            if (ast.get_docstring(module.tree) or "TODO").startswith("TODO")
        ]
        assert not silent, "Say in the first line what the module holds:\n" + "\n".join(silent)

    def test_open_with_a_verb_or_a_noun(self) -> None:
        riddles = [
            f"{module.file}:{line} {name}: {text.splitlines()[0]}"
            for module in EVERYTHING.values()
            for line, name, text in module.documented()
            if RIDDLE.match(text) or len(text.split()) < 2
        ]
        assert not riddles, "Begin with an imperative or a noun phrase of at least two words:\n" + "\n".join(riddles)


class TestImportsInsideFunctions:
    LAZY = tuple(each for each in IMPORTS if each.in_function)

    def test_stand_in_the_list_with_a_reason(self) -> None:
        unlisted = [
            f"{MODULES[each.importer].file}:{each.line} imports {each.imported}"
            for each in self.LAZY
            if not any(self.covers(entry, each) for entry in LAZY_IMPORTS)
        ]
        assert not unlisted, "Move to the top of the file, or list in LAZY_IMPORTS with a reason:\n" + "\n".join(
            unlisted
        )

    @pytest.mark.parametrize("entry", LAZY_IMPORTS, ids=lambda entry: f"{entry[0]}-{entry[1]}")
    def test_list_holds_nothing_else(self, entry: tuple[str, str, str]) -> None:
        assert any(self.covers(entry, each) for each in self.LAZY), f"Remove {entry} from LAZY_IMPORTS: nothing does so"

    @staticmethod
    def covers(entry: tuple[str, str, str], found: Import) -> bool:
        return is_below(found.importer, entry[0]) and is_below(found.imported, entry[1])


class TestClassNames:
    def test_are_unique(self) -> None:
        places = defaultdict(list)
        for module in MODULES.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{module.file}:{node.lineno}")
        shared = {name: files for name, files in places.items() if len(files) > 1}
        unlisted = {name: files for name, files in shared.items() if name not in SHARED_NAMES}
        assert not unlisted, "Rename towards what each is, or list in SHARED_NAMES with a reason:\n" + "\n".join(
            f"  {name}: {', '.join(files)}" for name, files in unlisted.items()
        )
        assert SHARED_NAMES.keys() <= shared.keys(), "Remove from SHARED_NAMES what only one class is called"
