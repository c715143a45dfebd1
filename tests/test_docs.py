"""The documentation against the code: examples run and print what is shown, links lead somewhere, counts are right."""

import re
from pathlib import Path

import pytest

from graph_rewrite.rulebook import catalogue
from tests.tutorial import executed

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "checkpoints", "configs", "docs", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
# Each page's first Python block runs as it stands; a text block right after it is what it prints.
EXAMPLES = ("README.md", "docs/graph.md", "docs/latency.md", "docs/environment.md", "docs/egraph.md")
# Pages of steps that build on each other.
TUTORIALS = ("add-a-rule.md",)

_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of a page's links to files and sections of this repository."""
    return [target for target in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_prints_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _EXAMPLE.search((ROOT / name).read_text(encoding="utf-8"))
    assert found is not None, f"{name} has no example"
    code, printed = found.groups()
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": "example"})
    out = capsys.readouterr().out
    if printed is None:
        assert out, "the example prints nothing"
    else:
        assert out == printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}; the headings are {sorted(anchors(file))}"


def test_every_page_is_linked_from_the_index() -> None:
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in links(DOCS / "index.md")}
    missing = [page.name for page in DOCS.rglob("*.md") if page.name != "index.md" and page not in linked]
    assert not missing, f"docs/index.md does not link to {missing}"


def test_the_catalogue_is_what_the_rules_give() -> None:
    """Else: python -m graph_rewrite rules catalogue"""
    assert catalogue.stale(DOCS) == []


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_prints_what_the_page_says(name: str) -> None:
    """Else: python -m tests.tutorial docs/NAME"""
    page = (DOCS / name).read_text(encoding="utf-8")
    assert executed(page) == page
