"""The catalogue of rules: pages of documentation, made from the rules, their certificates and recorded results."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from graph_rewrite import zoo
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.mutate.mutant_rules.rule import ORIGIN
from graph_rewrite.mutate.mutant_rules.shipped import shipped_mutants
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, Pattern, Scalar, Values
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rulebook.diagram import choices, drawing, example, instance_note
from graph_rewrite.rulebook.mutants import boxes_drawings, mutant_facts
from graph_rewrite.rulebook.reasons import reasons
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.certification import Certificate, certified, load
from graph_rewrite.system.atomic_files import replace_file

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
COMMAND = "python -m graph_rewrite rules catalogue"
MANY = 6
"""The most operators of a choice that are named; of more, their number is told."""

PAGES: Mapping[str, str] = {
    "hand": "rules.md", "generated": "rules-generated.md", "taso": "rules-taso.md", "mutant": "rules-mutants.md",
}  # fmt: skip
"""The page of each origin, beside that of the rules written by hand."""
TITLES: Mapping[str, str] = {
    "hand": "Rules", "generated": "Generated rules", "taso": "TASO's rules", "mutant": "Mutants",
}  # fmt: skip
_ABOUT: Mapping[str, str] = {
    "hand": "The rules written by hand. A rule is an equality of two patterns with a condition: a class whose "
    "docstring is the equation. [How to add one](../extending/rule.md); [where rules apply, and what refuses "
    "them](../concepts/candidates.md).",
    "generated": "Rules that the generator found: graphs of TASO's operators with equal values, verified and pruned. "
    "Their operators are those of TASO's algebra; `x0`, `x1`, ... are inputs.",
    "taso": "The substitutions of TASO's file (SOSP'19), imported and verified. Their operators are those of its "
    "algebra; `x0`, `x1`, ... are inputs.",
    "mutant": "[Mutants](../concepts/mutants.md) that come with RewriteGym: programs that nobody wrote as a rule. A "
    "search takes them with `--mutants shipped`. Each was equal to its original in a part of the output, and is "
    "[repaired](../concepts/repairs.md) in the rest. It holds for the shapes that it is proved for, and for any "
    "weights. A table marks what was wrong: `#` everywhere, `+` in a part of the other axes; `.` was right.",
}
_DRAWINGS = (
    "In a drawing, an operator over variables stands on one line and any other is the root of a tree; what is used "
    "more than once has a name and is drawn once, below."
)
_OF_HAND_WRITTEN = (
    "`b?` is an input that may be left out, `*xs` stands for all "
    "inputs of a variadic operator, `**conv` for the attributes of the node called `conv`. Brackets enclose what is "
    "computed from constants alone, once, and costs nothing at run time. Sources are patterns; targets are drawn for "
    "one instance, with its shapes and attributes. *Refuses* lists the reasons that `Rewriter.explain` gives; beside "
    "them every rule refuses where types don't fit, an inner value is used elsewhere, or a cycle would arise."
)


def all_sets() -> tuple[Rule, ...]:
    """Every rule of every set: written by hand, generated, imported; and the mutants that come with RewriteGym."""
    return (*rule_set("all"), *shipped_mutants())


def pages(rules: Sequence[Rule] | None = None) -> dict[str, str]:
    """The text of every page, by file name; pages of origins without rules are left out."""
    found = all_sets() if rules is None else tuple(rules)
    by_origin = {origin: [rule for rule in found if rule.origin == origin] for origin in PAGES}
    return {PAGES[origin]: page(origin, found) for origin, own in by_origin.items() if own}


def page(origin: str, rules: Sequence[Rule]) -> str:
    """The page of one origin; `rules` are those of all origins, which it counts."""
    own = [rule for rule in rules if rule.origin == origin]
    families: dict[str, list[Rule]] = {}
    for rule in own:
        families.setdefault(rule.family, []).append(rule)
    parts = [f"# {TITLES[origin]}", f"<!-- Made by `{COMMAND}`: do not edit. -->", _wrapped(_ABOUT[origin])]
    parts.extend(_counts(rules, origin))
    parts.append(_table_of_contents(families))
    parts.append(_wrapped(f"{_DRAWINGS} {_OF_HAND_WRITTEN}" if origin == "hand" else _DRAWINGS))
    for family, members in families.items():
        parts.append(f"## {family}")
        if origin == "hand":  # other names are numbers: a list of them tells nothing
            parts.append(" · ".join(f"[{rule.name}](#{rule.name.lower()})" for rule in members))
        parts.extend(section(rule) for rule in members)
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


def section(rule: Rule) -> str:
    """Return the lines of the catalogue on one rule."""
    match = example(rule)
    parts = [f"### {rule.name}", f"`{rule.equation}`", *notes(rule), f"```text\n{drawing(rule, match)}\n```"]
    if isinstance(rule, MutantRule):
        parts.extend(f"```text\n{drawn}\n```" for drawn in boxes_drawings(rule))
    parts.append("\n".join(f"- {line}" for line in facts(rule, match)))
    return "\n\n".join(parts)


def notes(rule: Rule) -> list[str]:
    """The paragraphs of a rule's docstring after its equation."""
    if isinstance(rule, MutantRule) or getattr(rule, "substitution", None) is not None:
        return []
    paragraphs = inspect.cleandoc(type(rule).__doc__ or "").split("\n\n")[1:]
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def facts(rule: Rule, match: Match | None) -> Iterator[str]:
    """Lines on the drawing (of that match), the condition, the certificate, and where the rule was used."""
    if isinstance(rule, MutantRule):
        yield from mutant_facts(rule)
        return
    by_hand = getattr(rule, "substitution", None) is None
    if by_hand:
        kinds = variable_kinds(rule.pattern)
        if kinds:
            yield kinds
        for label, operators in choices(rule.pattern):
            listed = ", ".join(operators) if len(operators) <= MANY else f"{len(operators)} operators"
            yield f"{label}: one of {listed}"
        if match is not None:
            yield f"drawn for {instance_note(match)}"
    found = reasons(rule)
    if found:
        yield f"{'refuses' if by_hand else 'condition'}: {'; '.join(found)}"
    yield f"certificate: {certificate_text(load(rule.name, rule.origin))}"
    used = where_used().get(rule.name)
    if used:
        yield f"used in: {', '.join(used)}"


def variable_kinds(pattern: Pattern) -> str:
    """Return the note on variables that are constants, or optional."""
    words = {Const: "constant", Scalar: "constant of one element", Maybe: "optional", Values: "any number of inputs"}
    words[MaybeConst] = "optional constant"
    found: dict[str, list[str]] = {}
    for var in pattern.variables:
        if var.kind in words:
            found.setdefault(words[var.kind], []).append(var.name)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in found.items())


def certificate_text(certificate: Certificate | None) -> str:
    """A certificate in a line."""
    if certificate is None:
        return "none yet"
    counts = ", ".join(f"{method} {count}" for method, count in certificate.methods.items())
    text = f"{certificate.verdict} at {certificate.instances} instances ({counts})"
    if certificate.error_bound:
        text += f", error bound {certificate.error_bound}"
    if certificate.lost:
        text += f"; does not keep {', '.join(certificate.lost)}"
    return text


@cache
def where_used() -> Mapping[str, tuple[str, ...]]:
    """Models by rule: those for which a result in benchmarks/results has this rule among its rewrites. Empty where the
    results are not installed."""
    models: dict[str, set[str]] = {}
    for file in sorted(RESULTS.glob("*/*.json")):
        for row in json.loads(file.read_text("utf-8")).get("rows", ()):
            if row.get("verified") and not row.get("failure"):
                name = zoo.name_in(row["model"])
                for rewrite in row["rewrites"]:
                    models.setdefault(rewrite["rule"], set()).add(name)
    return {rule: tuple(sorted(names)) for rule, names in models.items()}


def write(folder: Path) -> list[Path]:
    """Write all pages, each as a whole. Returns the files."""
    files = []
    for name, text in pages().items():
        replace_file(folder / name, text)
        files.append(folder / name)
    return files


def stale(folder: Path) -> list[Path]:
    """Pages that are not what `write` would make of them now."""
    return [
        folder / name
        for name, text in pages().items()
        if not (folder / name).exists() or (folder / name).read_text("utf-8") != text
    ]


def _counts(rules: Sequence[Rule], origin: str) -> Iterator[str]:
    by_origin = Counter(rule.origin for rule in rules)
    held = {name: certified(name) for name in by_origin if name != ORIGIN}
    found = Counter(rule.origin for rule in rules if rule.origin == ORIGIN or rule.name in held[rule.origin])
    rows = ["| origin | rules | with a certificate |", "|---|---|---|"]
    for name, count in by_origin.items():
        title = name if name == origin or name not in PAGES else f"[{name}]({PAGES[name]})"
        rows.append(f"| {title} | {count} | {found[name]} |")
    yield "\n".join(rows)


def _table_of_contents(families: Mapping[str, Sequence[Rule]]) -> str:
    rows = ["| family | rules |", "|---|---|"]
    rows += [f"| [{family}](#{family.replace(' ', '-')}) | {len(members)} |" for family, members in families.items()]
    total = sum(map(len, families.values()))
    return "\n".join((f"{total} rules in {len(families)} {'family' if len(families) == 1 else 'families'}:", "", *rows))
