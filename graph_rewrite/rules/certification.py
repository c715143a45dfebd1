"""Certificates of rules: how each was verified. They lie beside the rules in `graph_rewrite/rules/certificates/`.

A rule written by hand has a file of its own, `<Name>.json`. Rules that are data have one file per origin, such as
`generated.json`: there are hundreds of them, and they are made and verified together. `index.json` holds the digest of
every certified rule and one of the modules that they come from, so that the registry can check all in milliseconds.

Files are canonical: equal certificates give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.digests import modules_digest, modules_read
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.system.atomic_files import replace_file

FORMAT = 1
FOLDER = Path(__file__).resolve().parent / "certificates"
BY_HAND = "hand"
Verdict = Literal["proved", "tested"]


class UncertifiedRuleError(UserError):
    """A rule has no certificate, or one for other code."""


@dataclass(frozen=True)
class Certificate:
    """The outcome of the verification of a rule.

    `verdict` is `proved` where an exact method proved every instance. It is `tested` where the verifier could compare
    floating-point numbers alone, for the `reason` given. `methods` counts instances by method. `error_bound` bounds the
    probability that a wrong instance passed the evaluation over a prime field (empty where that was not used).
    `worst_error` is the largest difference in ONNX Runtime, relative to the scale of the output, rounded up to a power
    of ten. `kinds` counts the instances that were compared by kind of inputs, and `lost` says what the target does not
    keep. `shapes` and `parameters` sum up what the instances covered.
    """

    rule: str
    digest: str
    origin: str
    verdict: Verdict
    reason: str
    seed: int
    instances: int
    methods: Mapping[str, int]
    error_bound: str
    worst_error: str
    kinds: Mapping[str, int]
    lost: tuple[str, ...]
    shapes: Mapping[str, Sequence[str]]
    parameters: Mapping[str, Sequence[Any]]
    format: int = field(default=FORMAT)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, in the order of the fields."""
        return {"format": FORMAT, **{name: value for name, value in asdict(self).items() if name != "format"}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Certificate:
        """Return the certificate that `to_json` gave these values for.

        Raises:
            ValueError: another format, or fields that are missing or unknown.
        """
        if values.get("format") != FORMAT:
            raise ValueError(f"a certificate of format {values.get('format')!r}; this version reads {FORMAT}")
        wanted = set(cls.__dataclass_fields__)
        if set(values) != wanted:
            raise ValueError(f"fields {sorted(wanted - set(values))} missing, {sorted(set(values) - wanted)} unknown")
        return cls(**{**values, "lost": tuple(values["lost"])})


def file_of(name: str, origin: str = BY_HAND) -> Path:
    """Return the file that holds the certificate of a rule of this name and origin."""
    return FOLDER / f"{name if origin == BY_HAND else origin}.json"


def load(name: str, origin: str = BY_HAND) -> Certificate | None:
    """Return the certificate of a rule; None where there is none.

    Raises:
        ValueError: the file is damaged or of another format.
    """
    return _read(file_of(name, origin)).get(name)


def holds(rule: Rule) -> bool:
    """Tell whether the rule has a certificate that was made for its present code."""
    certificate = load(rule.name, rule.origin)
    return certificate is not None and certificate.digest == rule.digest


def certified(origin: str = BY_HAND) -> frozenset[str]:
    """Return the names of all rules of this origin that have certificates, valid or not."""
    if origin != BY_HAND:
        return frozenset(_read(file_of("", origin)))
    files = FOLDER.glob("*.json")
    return frozenset(file.stem for file in files if file.name != "index.json" and "certificates" not in _parse(file))


def write(
    certificates: Iterable[Certificate], registered: Iterable[Rule], *, retire: Iterable[tuple[str, str]] = ()
) -> list[Path]:
    """Write certificates and bring the index up to date.

    Args:
        certificates: what to write; certificates of other rules stay.
        registered: all rules written by hand, for the index.
        retire: name and origin of each rule whose certificate goes.

    Returns:
        The files written. Each is replaced as a whole, so that a reader sees the old one or the new one.
    """
    found = list(certificates)
    gone = dict(retire)
    by_file: dict[Path, dict[str, Certificate]] = {}
    for name, origin in gone.items():
        if origin == BY_HAND:
            file_of(name).unlink(missing_ok=True)
        else:
            by_file[file_of(name, origin)] = _read(file_of(name, origin))
    for certificate in found:
        file = file_of(certificate.rule, certificate.origin)
        if file not in by_file:
            by_file[file] = {} if certificate.origin == BY_HAND else _read(file)
        by_file[file][certificate.rule] = certificate
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file, held in by_file.items():
        replace_file(file, _text(file, {name: c for name, c in held.items() if name not in gone}))
    # From the files, not from the index before: another process may have written, or a merge left an older index.
    files = (file for file in FOLDER.glob("*.json") if file.name != "index.json")
    digests = {entry["rule"]: entry["digest"] for file in files for entry in _entries(_parse(file))}
    index = {"format": FORMAT, **_certified_modules(digests, registered), "rules": dict(sorted(digests.items()))}
    replace_file(FOLDER / "index.json", json.dumps(index, indent=1) + "\n")
    _index.cache_clear()
    return [*by_file, FOLDER / "index.json"]


def require(rules: Sequence[Rule]) -> None:
    """Refuse rules without a valid certificate.

    Rules written by hand are not looked at one by one while their modules are the same as when certificates were last
    written; otherwise each digest is computed from the code.

    Raises:
        UncertifiedRuleError: a rule has no certificate or one for other code; the message names the rule and the
            command that makes one.
    """
    index = _index()
    known: Mapping[str, str] = index.get("rules", {})
    same_code = bool(index.get("code")) and index["code"] == modules_digest(index["modules"])
    missing, stale = [], []
    for rule in rules:
        if rule.name not in known:
            missing.append(rule)
        elif not (same_code and rule.origin == BY_HAND) and known[rule.name] != rule.digest:
            stale.append(rule)
    if missing or stale:
        raise UncertifiedRuleError(_complaint(missing, stale))


def _complaint(missing: Sequence[Rule], stale: Sequence[Rule]) -> str:
    rule, what = (missing[0], "has no certificate") if missing else (stale[0], "has changed since it was certified")
    others = len(missing) + len(stale) - 1
    more = f" (and {others} more {'rules' if others > 1 else 'rule'})" if others else ""
    chosen = "--stale" if others else f"--rule {rule.name}"
    return f"rule {rule.name} {what}{more}: rewritegym rules verify {chosen} --write"


def _certified_modules(digests: Mapping[str, str], registered: Iterable[Rule]) -> dict[str, Any]:
    """Return the modules that rules written by hand come from, and their digest; none while any of these rules is not
    certified as it is now."""
    valid = all(digests.get(rule.name) == rule.digest for rule in registered)
    modules = modules_read() if valid else []
    return {"modules": modules, "code": modules_digest(modules)}


@cache
def _index() -> dict[str, Any]:
    file = FOLDER / "index.json"
    if not file.exists():
        return {}
    found: dict[str, Any] = _parse(file)
    return found if found.get("format") == FORMAT else {}


def _parse(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{file} is damaged: {error}; restore it, or write it again: rules verify --write") from error
    return found


def _read(file: Path) -> dict[str, Certificate]:
    """Return the certificates in a file, by the rules' names."""
    if not file.exists():
        return {}
    written = file.stat()
    return dict(_read_once(file, written.st_mtime_ns, written.st_size))


@lru_cache(maxsize=8)
def _read_once(file: Path, time_ns: int, size: int) -> dict[str, Certificate]:
    found = _parse(file)
    try:
        return {str(entry["rule"]): Certificate.from_json(entry) for entry in _entries(found)}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} holds no certificate: {error}") from error


def _entries(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the certificates in a file's content: those of a set of rules, or one."""
    entries: list[dict[str, Any]] = found.get("certificates", [found])
    return entries


def _text(file: Path, held: Mapping[str, Certificate]) -> str:
    if list(held) == [file.stem] and held[file.stem].origin == BY_HAND:
        fields = held[file.stem].to_json().items()
        return "{\n" + ",\n".join(f' "{name}": {json.dumps(value)}' for name, value in fields) + "\n}\n"
    # A line per rule: changes of a set of hundreds of rules stay readable.
    lines = ",\n".join(json.dumps(held[name].to_json()) for name in sorted(held))
    return f'{{"format": {FORMAT}, "certificates": [\n{lines}\n]}}\n'
