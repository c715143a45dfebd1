"""Keywords of environments, sorted into the parts that the environments are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def check_keywords(environment: str, options: Mapping[str, Any], known: frozenset[str]) -> None:
    """Check the keywords of an environment.

    Raises:
        TypeError: a keyword is not among the known ones.
    """
    unknown = options.keys() - known
    if unknown:
        raise TypeError(
            f"{environment} takes no keyword {', '.join(sorted(unknown))}; it takes {', '.join(sorted(known))}"
        )


def fields_given(options: Mapping[str, Any], part: type) -> dict[str, Any]:
    """Return the options that are fields of a part, a dataclass; for its other fields its defaults hold."""
    return {field.name: options[field.name] for field in fields(part) if field.name in options}
