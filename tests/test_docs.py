"""The documentation against the code: examples run and print what is shown, links and names lead somewhere."""

import json
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml

from graph_rewrite.rules import rule_set
from tests.envs.fakes import write_tower
from tests.tutorial import executed

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGES = ("agents", "benchmarks", "envs", "graph_rewrite", "rewritegym")
FOLDERS = ("benchmarks", "checkpoints", "configs", "docs", "examples")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
# Each Python block of these pages runs as it stands and prints something; a text block after it is what it prints.
EXAMPLES = (
    "README.md", "docs/concepts/graph.md", "docs/concepts/latency.md", "docs/concepts/e-graphs.md",
    "docs/concepts/layouts.md", "docs/concepts/mutants.md", "docs/concepts/repairs.md",
    "docs/rl/environment.md", "docs/rl/windows.md", "docs/extending/meter.md",
)  # fmt: skip
# Pages of steps that build on each other.
TUTORIALS = ("docs/extending/rule.md",)
# Pages whose code has a test of its own.
TESTED_BELOW = ("docs/guides/optimise.md", "docs/guides/deploy.md", "docs/rl/own-agent.md")

_EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAME = re.compile(r"\b(?:agents|benchmarks|envs|graph_rewrite|rewritegym)(?:\.(?!md\b)\w+)+")
_PATH = re.compile(r"\b(?:agents|benchmarks|checkpoints|configs|docs|envs|examples|graph_rewrite|tests)/[\w./-]*")
# Names that look like those of modules: the entry of an ONNX file's metadata, and the group of entry points.
NOT_PYTHON = {"rewritegym.deployment", "rewritegym.agents"}
OF_OTHER_TOOLS = {"TMPDIR", "logdir", "user"}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


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


def blocks(name: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```\n", text(name), re.MULTILINE | re.DOTALL)


def named(page: Path) -> str:
    """The text whose names must exist: of the changelog only the new names of what has moved."""
    content = page.read_text(encoding="utf-8")
    if page.name == "CHANGELOG.md":
        return "\n".join(row[1] for row in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|$", content, re.MULTILINE))
    return content


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run_and_print_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _EXAMPLE.findall(text(name))
    assert found, f"{name} has no example"
    monkeypatch.chdir(tmp_path)
    for code, printed in found:
        exec(compile(code, name, "exec"), {"__name__": "example"})
        out = capsys.readouterr().out
        assert out, "the example prints nothing"
        assert out == printed or not printed


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_prints_what_the_page_says(name: str) -> None:
    """Else: python -m tests.tutorial NAME"""
    assert executed(text(name)) == text(name)


def test_all_code_is_tested() -> None:
    with_code = {page.relative_to(ROOT).as_posix() for page in PAGES if "```python" in page.read_text("utf-8")}
    assert with_code == {*EXAMPLES, *TUTORIALS, *TESTED_BELOW}


def test_the_guide_makes_a_model_that_rules_apply_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graph_rewrite.rules import Rewriter, find_rule
    from graph_rewrite.task.models import open_model

    monkeypatch.chdir(tmp_path)
    code, *_ = blocks("docs/guides/optimise.md", "python")
    exec(compile(code, "make_model.py", "exec"), {"__name__": "__main__"})
    candidates = Rewriter([find_rule("Winograd4x4Relu")], "class").candidates(open_model("file:model.onnx").graph)
    assert max(candidate.count for candidate in candidates) == 4


def test_the_guide_optimises_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tower(tmp_path / "model.onnx", 2, 16)
    *_, code = blocks("docs/guides/optimise.md", "python")
    assert "time_limit=40" in code
    exec(compile(code.replace("time_limit=40", "time_limit=4"), "from_python.py", "exec"), {"__name__": "__main__"})
    assert "verified: True" in capsys.readouterr().out
    assert (tmp_path / "fast.onnx").is_file()


def test_the_guide_writes_inputs_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graph_rewrite import load
    from graph_rewrite.task.input_data import read_input_data
    from tests.graph_rewrite.sample_models import parsed

    monkeypatch.chdir(tmp_path)
    _, code, _ = blocks("docs/guides/optimise.md", "python")
    exec(compile(code, "data.py", "exec"), {"__name__": "__main__"})
    model = load(parsed("(float[1,3,224,224] image) => (float[1,3,224,224] y) { y = Relu(image) }"))
    assert len(read_input_data(["data.npz"], model)) == 8


def test_the_guide_opens_a_result_without_rewritegym(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from graph_rewrite.delivery.deployed import sidecar_of
    from graph_rewrite.delivery.deployment_code import deployment_code
    from graph_rewrite.runtime import Deployment

    monkeypatch.chdir(tmp_path)
    page, path = "docs/guides/deploy.md", Path("model.optimized.onnx")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    onnx.save(model, path)
    refusing = Deployment(threads=4).with_disabled(["SkipLayerNormFusion"])
    shown = refusing.with_settings({"dynamic_block_base": 4})
    sidecar_of(path).write_text(json.dumps(shown.to_json()), "utf-8")
    opens, writes, in_openvino = blocks(page, "python")
    texts = {"python": opens, "cpp": blocks(page, "cpp")[0], "csharp": blocks(page, "csharp")[0]}
    assert texts == deployment_code(shown, path)
    assert in_openvino == deployment_code(Deployment("openvino", threads=4), path)["python"]
    names: dict[str, Any] = {}
    exec(compile(opens, page, "exec"), names)
    assert [output.name for output in names["session"].get_outputs()] == ["y"]
    options = names["session"].get_session_options()
    assert options.get_session_config_entry("optimization.disable_specified_optimizers") == "SkipLayerNormFusion"
    exec(compile(writes, page, "exec"), {})
    assert capsys.readouterr().out == texts["cpp"] + "\n"


def test_the_page_on_agents_shows_the_example() -> None:
    folder = "examples/own_agent"
    assert blocks("docs/rl/own-agent.md", "python") == [f"# first_gain.py\n{text(f'{folder}/first_gain.py')}"]
    assert blocks("docs/rl/own-agent.md", "toml") == [text(f"{folder}/pyproject.toml")]


def test_the_example_is_an_agent_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agents import Budget, make_agent
    from tests.agents.toys import chain_problem

    project = tomllib.loads(text("examples/own_agent/pyproject.toml"))["project"]
    info = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: first-gain\nVersion: 0.1.0\n", "utf-8")
    points = project["entry-points"]["rewritegym.agents"]
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[rewritegym.agents]", *lines]), "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "own_agent"))
    result = make_agent("first-gain:gain=0.01").optimize(chain_problem(tmp_path, 1), Budget())
    assert result.agent == "first-gain:gain=0.01"
    assert result.verified
    assert result.measurements >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}; the headings are {sorted(anchors(file))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_and_paths_exist(page: Path) -> None:
    found = named(page)
    missing = [name for name in sorted(set(_NAME.findall(found)) - NOT_PYTHON) if not resolves(name)]
    for path in set(_PATH.findall(found)):
        exact = path.rstrip("./-")
        # A name in capitals stands for what the reader puts there.
        if not re.search(r"[A-Z]{2}|N\.", exact) and not (ROOT / exact).exists() and not list(ROOT.glob(f"{exact}*")):
            missing.append(path)
    assert not missing, f"{page.name} names {missing}"


@cache
def words_of_the_code() -> frozenset[str]:
    """Every identifier in the packages, and every name of a rule."""
    files = [file for folder in PACKAGES for file in (ROOT / folder).rglob("*.py")]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text("utf-8"))}
    return frozenset(words | {rule.name for rule in rule_set("all")})


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), ROOT / "README.md"], ids=lambda page: page.name)
def test_classes_and_options_that_pages_name_are_in_the_code(page: Path) -> None:
    code = re.findall(r"`([^`\n]+)`", prose(page))
    names = {word for text in code for word in re.findall(r"^(?:[A-Z]\w*[a-z]\w*|[A-Z_]{4,})(?=\.|\(|$)", text)}
    options = {option for text in code for option in re.findall(r"(?<=--)(?:no-)?([a-z][a-z-]+)", text)}
    missing = (names | {option.replace("-", "_") for option in options}) - words_of_the_code() - OF_OTHER_TOOLS
    assert not missing, f"{page.name} names {missing}"


def resolves(name: str) -> bool:
    """Tell whether a dotted name is a module, or leads to something from a module."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_every_page_is_linked_from_the_index_and_in_the_navigation() -> None:
    pages = {page for page in DOCS.rglob("*.md") if page.name != "index.md"}
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in links(DOCS / "index.md")}
    assert not pages - linked, f"docs/index.md does not link to {pages - linked}"
    navigation = text("mkdocs.yml").partition("\nnav:")[2]
    missing = [page for page in pages if f": {page.relative_to(DOCS).as_posix()}\n" not in navigation]
    assert not missing, f"mkdocs.yml does not list {missing}"


def test_the_settings_of_the_site_are_yaml() -> None:
    settings = yaml.safe_load(text("mkdocs.yml"))
    assert settings["validation"]["links"]["anchors"] == "warn"
