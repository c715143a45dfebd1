"""The HTML report in headless Chromium: nothing runs, nothing is cut off, on phones and on desktops, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agents.reporting.html import html_report
from tests.agents.reporting.html_pages import HOSTILE, full_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium on the path (apt-get install chromium)"),
]
PROBE = """
<!doctype html><meta charset="utf-8"><title>waiting</title>
<body style="margin:0"><iframe id="page" style="border:0;width:%dpx;height:800px" srcdoc="%s"></iframe>
<script>
const frame = document.getElementById('page');
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement, style = e => frame.contentWindow.getComputedStyle(e);
  for (const part of page.querySelectorAll('details')) part.open = true;
  const wide = [...page.querySelectorAll('main *')].filter(
    e => !e.closest('.scroll') && !e.closest('pre') && e.getBoundingClientRect().right > root.clientWidth + 1);
  const found = {
    scrollWidth: root.scrollWidth, clientWidth: root.clientWidth, wide: wide.map(e => e.outerHTML.slice(0, 80)),
    scripts: page.scripts.length, alerts: window.alerts || 0, headings: page.querySelectorAll('h1, h2').length,
    paper: style(page.body).backgroundColor, ink: style(page.body).color,
    drawings: page.querySelectorAll('svg.graph').length,
    drawn: [...page.querySelectorAll('svg.graph')].every(e => e.getBoundingClientRect().width > 20),
    size: parseFloat(style(page.body).fontSize),
    tables: [...page.querySelectorAll('.scroll')].filter(e => e.querySelector('table')).map(
      e => e.scrollWidth <= e.clientWidth),
  };
  document.body.textContent = 'FOUND' + JSON.stringify(found) + 'END';
};
window.alert = () => { window.alerts = (window.alerts || 0) + 1; };
</script>
"""


def look_at(document: str, folder: Path, width: int, *flags: str) -> dict[str, Any]:
    """Return what a browser makes of a page that is `width` pixels wide."""
    harness = folder / "harness.html"
    harness.write_text(PROBE % (width, html.escape(document)), encoding="utf-8")
    command = [
        str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000", "--virtual-time-budget=5000", *flags, "--dump-dom", harness.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    match = re.search("FOUND(.*)END", html.unescape(done.stdout))
    assert match is not None, done.stderr
    found: dict[str, Any] = json.loads(match[1])
    return found


def brightness(colour: str) -> float:
    red, green, blue = map(float, re.findall(r"[\d.]+", colour)[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, width: int) -> None:
    long = "/encoder/layers.0/attention/self/query/MatMul_with_a_very_long_name" * 3
    found = look_at(html_report(full_report(long)), tmp_path, width)
    assert found["clientWidth"] >= width - 20
    assert found["wide"] == []
    assert found["scrollWidth"] <= found["clientWidth"]
    assert found["size"] >= 16
    assert found["drawings"] == 4
    assert found["drawn"]
    assert found["headings"] >= 7


def test_the_figures_before_and_after_fit_on_a_phone(tmp_path: Path) -> None:
    assert look_at(html_report(full_report()), tmp_path, 390)["tables"][0]


def test_nothing_runs_whatever_names_say(tmp_path: Path) -> None:
    found = look_at(html_report(full_report(HOSTILE)), tmp_path, 390)
    assert found["scripts"] == found["alerts"] == 0
    assert found["wide"] == []


def test_colours_follow_the_reader(tmp_path: Path) -> None:
    light = look_at(html_report(full_report()), tmp_path, 390, "--blink-settings=preferredColorScheme=1")
    dark = look_at(html_report(full_report()), tmp_path, 390, "--blink-settings=preferredColorScheme=0")
    assert brightness(light["paper"]) > 200 > 100 > brightness(light["ink"])
    assert brightness(dark["paper"]) < 60 < 180 < brightness(dark["ink"])
