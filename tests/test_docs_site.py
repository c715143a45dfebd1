"""The hooks that make the documentation's generated pages, without MkDocs."""

import importlib.util
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from graph_rewrite.mutate.mutant_rules.shipped import shipped_mutants
from graph_rewrite.rulebook import catalogue
from graph_rewrite.rules import all_rules, find_rule, rule_set

ROOT = Path(__file__).resolve().parent.parent


def load_hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks = load_hooks()


def test_the_navigation_lists_every_generated_page_and_no_other_that_is_missing() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r": (\S+\.md)$", navigation, re.MULTILINE))
    assert set(hooks.generated()) <= listed
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    outside = {page.relative_to(ROOT).as_posix() for page in hooks.outside()}
    assert listed <= there | outside | set(hooks.generated())


@pytest.mark.parametrize(("title", "module", "arguments"), hooks.COMMANDS, ids=[title for title, *_ in hooks.COMMANDS])
def test_commands_tell_their_arguments(title: str, module: str, arguments: tuple[str, ...]) -> None:
    text = hooks.help_of(module, arguments)
    assert text.startswith("usage: ")
    assert "--help" in text
    # Descriptions are not wrapped, options are.
    options = text.partition("options")[2] or text
    assert max(map(len, options.splitlines()[1:])) <= int(hooks.WIDTH)


def test_every_command_of_the_console_script_is_shown() -> None:
    from rewritegym.cli import COMMANDS

    shown = {module for _, module, _ in hooks.COMMANDS}
    assert {command.module for command in COMMANDS.values()} <= shown


@pytest.mark.parametrize("package", hooks.PACKAGES)
def test_the_api_lists_public_names(package: str) -> None:
    names = hooks.exported(package)
    assert names, f"{package} has no __all__"
    assert all(hasattr(import_module(package), name) for name in names)
    assert f"::: {package}.{names[0]}" in hooks.api(package)


def test_links_that_leave_docs_lead_to_files_of_the_site() -> None:
    page = "[a](../../benchmarks/zen4.md#e-graphs) [b](graph.md) [c](#here) [d](https://onnx.ai)\n```\n[e](../../x.md)\n```\n"
    relinked = hooks.relinked(page, "docs/concepts/windows.md")
    expected = page.replace("../../benchmarks", "../benchmarks")
    assert relinked == expected
    page = "[a](../docs/concepts/graph.md) [b](results/latency/discrepancy.md)"
    assert hooks.relinked(page, "benchmarks/zen4.md") == "[a](../concepts/graph.md) [b](results/latency/discrepancy.md)"


def test_files_that_pages_link_to_are_found() -> None:
    found = {file.relative_to(ROOT).as_posix() for file in hooks.linked_files((ROOT / "docs").rglob("*.md"))}
    assert "examples/own_agent/first_gain.py" in found
    assert not any(name.startswith("docs/") for name in found)


def test_the_digest_of_sources_depends_on_names_and_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "ROOT", tmp_path)
    digests = []
    for name, text in (("a.py", "x"), ("a.py", "y"), ("b.py", "y")):
        for file in tmp_path.iterdir():
            file.unlink()
        (tmp_path / name).write_text(text, "utf-8")
        digests.append(hooks.digest(["*.py"]))
    assert len(set(digests)) == 3
    assert hooks.digest(["*.py", "*.md"]) == digests[-1]


def test_the_catalogue_is_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def rules() -> tuple[object, ...]:
        drawn.append(1)
        return (*(rule_set(name)[0] for name in ("default", "generated", "taso")), shipped_mutants()[0])

    monkeypatch.setattr(hooks, "CACHE", tmp_path)
    monkeypatch.setattr(catalogue, "all_sets", rules)
    pages = hooks.catalogue.__wrapped__()
    assert hooks.catalogue.__wrapped__() == pages
    assert list(pages) == list(hooks.CATALOGUE) == list(catalogue.PAGES.values())
    assert len(drawn) == 1


def test_links_of_the_catalogue_lead_to_pages() -> None:
    for name, text in catalogue.pages([find_rule("AddZero")]).items():
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            file = (ROOT / "docs" / "reference" / link).resolve()
            assert file.exists() or link in catalogue.PAGES.values(), f"{name} links to {link}"


def test_a_rule_of_every_family_and_set_has_a_section_with_its_certificate() -> None:
    first = {rule.family: rule for rule in reversed(all_rules())}
    for rule in (*first.values(), rule_set("generated")[0], rule_set("taso")[0]):
        section = catalogue.section(rule)
        assert section.startswith(f"### {rule.name}\n\n`{rule.equation}`\n")
        assert "```text\n" in section
        assert re.search(r"^- certificate: (proved|tested) at \d+ instances", section, re.MULTILINE), rule.name
