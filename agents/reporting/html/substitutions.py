"""The section of a report that shows each rewrite: its equation, where, what it saves, a drawing before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.reporting.html.markup import Html, join, tag
from agents.reporting.html.numbers import counted, milliseconds
from agents.reporting.html.report import OptimizationReport, RewriteDetails
from graph_rewrite.rulebook.svg_drawing import draw_svg

OPEN = 3
"""Rewrites whose drawings are shown at once; the others open by a click."""
MOST_NAMES = 6
"""Names of sites that are listed."""
LONGEST = 200
"""Characters of a rewrite's description."""


def substitutions(report: OptimizationReport) -> Html | None:
    """Return the rewrites in order; None where the original is kept."""
    rewrites = report.entry["rewrites"]
    if not rewrites:
        return None
    biggest = max((abs(r["saved_ms"]) for r in rewrites if r.get("saved_ms") is not None), default=0.0)
    items = [_item(rewrite, report.details_of(i), i, biggest) for i, rewrite in enumerate(rewrites)]
    text = (
        f"{counted(len(rewrites), 'substitution')}, in the order in which they were applied. What each saves comes "
        "from the measurements of the search, scaled to the saving of the result; the figures have their noise."
    )
    return tag(
        "section", tag("h2", "Substitutions", id="substitutions"), tag("p", text), _together(report),
        tag("ol", *items, class_="rewrites"), aria_labelledby="substitutions",
    )  # fmt: skip


def _together(report: OptimizationReport) -> Html | None:
    """Return what rewrites save of which only the sum is known."""
    texts = []
    for saving in report.entry.get("savings") or ():
        steps = saving["steps"]
        if len(steps) > 1:
            numbers = f"{', '.join(map(str, steps[:-1]))} and {steps[-1]}"
            texts.append(tag("li", f"Substitutions {numbers} save ", milliseconds(saving["ms"]), " together."))
    return tag("ul", *texts) if texts else None


def _item(rewrite: Mapping[str, Any], details: RewriteDetails, number: int, biggest: float) -> Html:
    where = "the whole model" if _is_setting(rewrite) else counted(int(rewrite["sites"]), "site")
    sites = tag("span", where, class_="sites")
    equation = tag("pre", tag("code", details.equation), class_="equation") if details.equation else None
    return tag(
        "li", tag("h3", rewrite["rule"]), tag("p", sites, _saved(rewrite.get("saved_ms"), biggest), class_="facts"),
        equation, _where(rewrite, details), _drawings(rewrite, details, number < OPEN),
    )  # fmt: skip


def _is_setting(rewrite: Mapping[str, Any]) -> bool:
    """Return whether a rewrite is a deployment choice, which has nothing to be described by but its name."""
    return str(rewrite.get("description") or rewrite.get("where")) == str(rewrite["rule"])


def _saved(ms: float | None, biggest: float) -> Html:
    """Return what a rewrite saves, with a bar."""
    if ms is None:
        return tag("span", "saving not known by itself", class_="saved unknown")
    width = 0.0 if biggest == 0.0 else 96.0 * abs(ms) / biggest
    bar = tag(
        "svg", tag("rect", width=f"{width:.1f}", height="10", rx="2", class_="bar" if ms >= 0 else "bar loss"),
        width="96", height="10", aria_hidden="true",
    )  # fmt: skip
    words = tag("span", "saves " if ms >= 0 else "costs ", milliseconds(abs(ms)))
    return tag("span", bar, words, class_="saved" if ms >= 0 else "saved loss")


def _where(rewrite: Mapping[str, Any], details: RewriteDetails) -> Html:
    if not details.where:
        text = str(rewrite.get("description") or rewrite.get("where") or "")
        if _is_setting(rewrite):
            text = "how ONNX Runtime runs the model"
        return tag("p", text if len(text) <= LONGEST else f"{text[:LONGEST]}...", class_="where")
    names = [tag("code", name) for name in details.where[:MOST_NAMES]]
    parts = [part for name in names for part in (name, ", ")][:-1]
    more = len(details.where) - len(names)
    return tag("p", "at ", *parts, f" and {more} more" if more > 0 else "", class_="where")


def _drawings(rewrite: Mapping[str, Any], details: RewriteDetails, shown: bool) -> Html | None:
    if details.before is None or details.after is None:
        return None
    sides = []
    for name, diagram in (("before", details.before), ("after", details.after)):
        drawing = Html(draw_svg(diagram, f"{rewrite['rule']}, the operators {name}"))
        scroll = tag("div", drawing, class_="scroll", tabindex="0", role="region", aria_label=f"drawing {name}")
        sides.append(tag("figure", tag("figcaption", name), scroll))
    title = "Drawing of the first site" if int(rewrite["sites"]) > 1 else "Drawing"
    return tag("details", tag("summary", title), tag("div", join(*sides), class_="sides"), open=shown)
