"""Rules by the names that a user gives: of a registered rule, of a rule in a set, or of a class in a file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import RULE_SETS, UnknownRuleError, registered_rules
from graph_rewrite.rules.substitutions.rule_files import shipped_rules


def resolve(name: str) -> Rule:
    """Return a rule by its name, as set/name, or as path/to/file.py:ClassName.

    Raises:
        UnknownRuleError: there is no such rule.
        UserError: there is no such file, or no such class in it.
    """
    path, colon, kind = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), kind)
    origin, _, plain = name.rpartition("/")
    for known in [origin] if origin else RULE_SETS:
        if plain in _by_name(known):
            return _by_name(known)[plain]
    where = f" in the set {origin}" if origin else ""
    raise UnknownRuleError(f"there is no rule {plain!r}{where}; rules list names them")


@cache
def _by_name(name: str) -> dict[str, Rule]:
    return {rule.name: rule for rule in rules_of_set(name)}


def rules_of_set(name: str) -> Sequence[Rule]:
    """Return the rules of a set, with or without certificates.

    Raises:
        UserError: there is no such set.
    """
    if name == RULE_SETS[0]:
        return registered_rules()
    if name not in RULE_SETS:
        raise UserError(f"there is no rule set {name!r}; there are {', '.join(RULE_SETS)}")
    return shipped_rules(name)


def _from_file(path: Path, kind: str) -> Rule:
    if not path.is_file():
        raise UserError(f"--rule {path}:{kind}: there is no such file")
    module_name = f"rewritegym_rules_{path.stem}"
    module = sys.modules.get(module_name)
    if module is None or getattr(module, "__file__", None) != str(path.resolve()):
        spec = importlib.util.spec_from_file_location(module_name, path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    found = getattr(module, kind, None)
    if not (isinstance(found, type) and issubclass(found, Rule)):
        raise UserError(f"--rule {path}:{kind}: the file defines no rule of this name")
    return found()
