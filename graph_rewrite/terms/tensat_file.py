"""TENSAT's rule files (MLSys'21): a line `(op args)=>(op args)` per rule, in egg's syntax.

A rule of two outputs ("multi-pattern") is two lines, one per output, which share variables. TENSAT keeps such rules in
a file of their own; here, a file whose name contains `multi` holds pairs only, and in others two lines are a pair where
the first one's target has variables that its source lacks, or the two targets are the two parts of one split.

Operators and the order of their arguments are those of `model.rs`; where its versions disagree, all forms are read:
`(matmul [activation] a b)`, `(concat axis [rank] a b)`, `(enlarge kh kw w)`, pooling with its input first or last, and
with or without an activation. Where `concat` lacks the rank, it follows from the operators around it, else it is 2.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.substitution import MalformedTermError, Substitution
from graph_rewrite.terms.tensat_reader import Tree, is_complete, parse_tree, read_group
from graph_rewrite.terms.tensat_writer import write_side


def read_tensat(path: str | os.PathLike[str]) -> list[Substitution]:
    """Return the substitutions of a file, in its order.

    Raises:
        RuleFileError: no such file, or a line that is no rule; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleFileError(f"{path}: cannot be read as text: {error}") from error
    return parse_tensat(text, str(path), pairs="multi" in Path(path).name)


def parse_tensat(text: str, name: str = "rules", pairs: bool = False) -> list[Substitution]:
    """Return the substitutions in the text of a file.

    Args:
        text: of the file.
        name: stands for the file in errors.
        pairs: whether the file holds pairs of lines only.

    Raises:
        RuleFileError: as `read_tensat`.
    """
    lines = [(number, _rule(line, f"{name}: line {number}")) for number, line in _lines(text)]
    if not lines:
        raise RuleFileError(f"{name}: no rules")
    found, at = [], 0
    while at < len(lines):
        number, first = lines[at]
        group = [first]
        if pairs or not is_complete(first, lines[at + 1][1] if at + 1 < len(lines) else None):
            if at + 1 == len(lines):
                raise RuleFileError(f"{name}: line {number}: the second line of this pair is missing")
            group.append(lines[at + 1][1])
        try:
            found.append(read_group(group))
        except MalformedTermError as error:
            raise RuleFileError(f"{name}: line {number}: {error}") from error
        at += len(group)
    return found


def tensat_texts(substitutions: Iterable[Substitution]) -> tuple[str, str]:
    """Return single rules and multi-pattern rules as the texts of TENSAT's two files.

    Raises:
        RuleFileError: more than two outputs.
    """
    single: list[str] = []
    multi: list[str] = []
    for number, substitution in enumerate(substitutions):
        before, after = write_side(substitution.source), write_side(substitution.target)
        lines = [f"{a}=>{b}" for a, b in zip(before, after, strict=True)]
        if len(lines) > 2:
            raise RuleFileError(f"rule {number}, {substitution}: TENSAT has rules of one or two outputs")
        (single if len(lines) == 1 else multi).extend(lines)
    return "".join(f"{line}\n" for line in single), "".join(f"{line}\n" for line in multi)


def write_tensat(substitutions: Iterable[Substitution], path: str | os.PathLike[str]) -> list[Path]:
    """Write single rules to `path` and multi-pattern rules beside it, as `<name>_multi<suffix>`, each atomically.

    Returns:
        The files written: one of them is left out where it would be empty.

    Raises:
        RuleFileError: as `tensat_texts`.
    """
    plain = Path(path)
    texts = tensat_texts(substitutions)
    written = []
    for file, text in zip((plain, plain.with_name(f"{plain.stem}_multi{plain.suffix}")), texts, strict=True):
        if text:
            replace_file(file, text)
            written.append(file)
    return written


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def _rule(line: str, where: str) -> tuple[Tree, Tree]:
    before, separator, after = line.partition("=>")
    if not separator:
        raise RuleFileError(f"{where}: no rule: write (op args)=>(op args)")
    try:
        return parse_tree(before), parse_tree(after)
    except MalformedTermError as error:
        raise RuleFileError(f"{where}: {error}") from error
