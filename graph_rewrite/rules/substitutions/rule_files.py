"""Files of substitutions as rules: what the generator and the importers write, and the rule sets read.

    {"format": 1, "origin": "taso", "family": "taso", "made_by": "...",
     "rules": [{"name": "Taso000", "source": ..., "target": ..., "conditions": [...]}],
     "refused": [{"name": "Taso007", "equation": "...", "reason": "..."}]}

Sides are written as `graph_rewrite.terms.json_form` says, one rule on a line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.terms.json_form import from_json, to_json
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.substitution import MalformedTermError, Substitution

FORMAT = 1
FOLDER = Path(__file__).parent


def write_rules(
    path: str | os.PathLike[str],
    rules: Mapping[str, Substitution],
    *,
    origin: str,
    family: str,
    made_by: str,
    refused: Iterable[Mapping[str, str]] = (),
) -> None:
    """Write substitutions by name, atomically. `made_by` is the command that made them."""
    head = {"format": FORMAT, "origin": origin, "family": family, "made_by": made_by}
    lines = [json.dumps({"name": name, **to_json(substitution)}) for name, substitution in rules.items()]
    text = json.dumps(head)[:-1]
    text += ', "rules": [\n' + ",\n".join(lines) + '\n], "refused": [\n'
    text += ",\n".join(json.dumps(dict(entry)) for entry in refused) + "\n]}\n"
    replace_file(Path(path), text)


def read_rules(path: str | os.PathLike[str]) -> tuple[SubstitutionRule, ...]:
    """Return the rules of a file, in its order.

    Raises:
        RuleFileError: no such file, no such format, or an entry that is no rule.
    """
    entries, family, origin = _entries(path)
    rules = []
    for number, (name, entry) in enumerate(entries):
        try:
            rules.append(SubstitutionRule(from_json(entry), name, family, origin))
        except MalformedTermError as error:
            raise RuleFileError(f"{path}: rule {number}: {error}") from error
    return tuple(rules)


def _entries(path: str | os.PathLike[str]) -> tuple[list[tuple[str, Any]], str, str]:
    """Return the rules of a file as JSON with their names, their family and their origin."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise RuleFileError(f"{path}: of format {data['format']}, not {FORMAT}; make it again")
        entries, family, origin = data["rules"], str(data["family"]), str(data["origin"])
    except OSError as error:
        raise RuleFileError(f"{path}: cannot be read: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RuleFileError(f"{path}: not a file of rules: {error!r}") from error
    named = []
    for number, entry in enumerate(entries):
        try:
            named.append((str(entry["name"]), entry))
        except (KeyError, TypeError) as error:
            raise RuleFileError(f"{path}: rule {number} has no name: {error!r}") from error
    return named, family, origin


@cache
def shipped_rules(name: str) -> tuple[SubstitutionRule, ...]:
    """Return the rules of `<name>.json` beside this module; none where there is no such file."""
    path = FOLDER / f"{name}.json"
    return read_rules(path) if path.is_file() else ()


@cache
def shipped_names(name: str) -> tuple[str, ...]:
    """Return the names of `shipped_rules`, in their order, without building the rules: there are hundreds."""
    path = FOLDER / f"{name}.json"
    return tuple(rule for rule, _ in _entries(path)[0]) if path.is_file() else ()


def imported_rules() -> tuple[SubstitutionRule, ...]:
    """Return TASO's substitutions, each under the condition under which it holds."""
    return shipped_rules("taso")
