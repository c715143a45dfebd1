"""Charts of a report as SVG. Colours come from the page's style."""

from __future__ import annotations

from collections.abc import Sequence

from agents.reporting.html.markup import Html, tag
from agents.reporting.html.numbers import TIMES

_WIDTH, _HEIGHT = 480.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 12.0, 34.0


def latency_bars(before_ms: float, after_ms: float, interval: tuple[float, float]) -> Html:
    """Return two bars, the original's latency and the result's, with the 95% interval of the latter.

    Args:
        interval: of the speed-up, lower end first.
    """
    low, high = before_ms / interval[1], before_ms / interval[0]
    scale = 405.0 / max(before_ms, high)
    parts: list[Html] = []
    for i, (name, ms) in enumerate((("before", before_ms), ("after", after_ms))):
        y = 8.0 + 34.0 * i
        parts.append(tag("text", name, x="58", y=f"{y + 17}", text_anchor="end", class_="label"))
        parts.append(
            tag("rect", x="66", y=f"{y}", width=f"{ms * scale:.1f}", height="24", rx="3", class_=f"bar bar-{name}")
        )
    x0, x1, middle = 66 + low * scale, 66 + high * scale, 54.0
    parts.append(tag("path", d=f"M{x0:.1f} {middle}H{x1:.1f}M{x0:.1f} 47v14M{x1:.1f} 47v14", class_="whisker"))
    title = tag("title", f"latency: {before_ms:.3g} ms before, {after_ms:.3g} ms after")
    return tag("svg", title, *parts, class_="chart", role="img", viewBox="0 0 480 76")


def trajectory(points: Sequence[tuple[float, float]], seconds: float) -> Html:
    """Return the best speed-up over the seconds of a search, as steps.

    Args:
        points: (seconds, best speed-up) at every improvement.
        seconds: length of the search.
    """
    end = max(seconds, points[-1][0], 1e-9)
    low, high = min(1.0, *(s for _, s in points)), max(1.02, *(s for _, s in points))
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / end

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low)

    parts: list[Html] = []
    for value in ticks:
        parts.append(tag("path", d=f"M{_LEFT} {y(value):.1f}H{_WIDTH - _RIGHT}", class_="grid"))
        parts.append(tag("text", f"{value:g}{TIMES}", x=f"{_LEFT - 8}", y=f"{y(value) + 4:.1f}", text_anchor="end"))
    for value in _ticks(0.0, end):
        if value <= end:
            parts.append(tag("text", f"{value:g} s", x=f"{x(value):.1f}", y=f"{_HEIGHT - 12}", text_anchor="middle"))
    path = [f"M{x(points[0][0]):.1f} {y(points[0][1]):.1f}"]
    for when, speedup in points[1:]:
        path.append(f"H{x(when):.1f}V{y(speedup):.1f}")
    parts.append(tag("path", d="".join((*path, f"H{x(end):.1f}")), class_="curve"))
    parts += [tag("circle", cx=f"{x(t):.1f}", cy=f"{y(s):.1f}", r="3", class_="point") for t, s in points]
    title = tag("title", f"best speed-up over {seconds:.0f} seconds of search: {points[-1][1]:.3f} at the end")
    return tag("svg", title, *parts, class_="chart", role="img", viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}")


def _ticks(low: float, high: float) -> list[float]:
    """Return four or so round numbers around a range."""
    step = 10.0**-12
    for power in range(-12, 12):
        found = next((s for s in (1.0, 2.0, 5.0) if (high - low) / (s * 10.0**power) <= 4.5), None)
        if found is not None:
            step = found * 10.0**power
            break
    first = int(low / step + 1e-9)
    count = int((high - first * step) / step + 1.999999)
    return [round((first + i) * step, 12) for i in range(count)]
