"""The benchmark of families: forms apply and keep the outputs, files keep what was not measured."""

import json

import numpy as np
import pytest

from benchmarks.rules import families
from benchmarks.rules import transformer_layers as T
from graph_rewrite.operators.evaluation import run_graph
from tests.graph_rewrite.rules.checking import ops, random_feeds


def small(family):
    """The forms of a family with a small graph of the kind it is measured on."""
    return {
        "winograd": (families.layers(16, (8, 8), (3, 3)), families.WINOGRAD[::2]),
        "convolution_nd": (families.layers(16, (4, 3, 3), (3, 3, 3)), families.CLIPS[::2]),
        "dilation": (
            families.layers(16, (8, 8), (3, 3), "pads=[2,2,2,2], dilations=[2,2]"), families.DILATED,
        ),
        "channel_padding": (families.pooled(24, 5), families.PADDED),
        "attention": (T.attention(8, 2, causal=True, size=4), forms(T.CAUSAL)),
        "feed_forward": (T.feed_forward(3, 16, 32, "Relu"), forms(T.POINTWISE)),
        "residual": (T.residual(3, 16), forms(T.SUMS)),
        "rows": (T.encoder(3, 8, 16, 2), forms(T.ROWS)),
        "strassen": (T.feed_forward(385, 64, 64), forms(T.STRASSEN)),
        "embedding": (T.embedded(3, 8, 2), forms(T.LOOKUPS)),
        "tiling": (T.joint(8, 3, 6, 5), forms(T.TILES, once=True)),
    }[family]  # fmt: skip


def forms(of_transformers, once=False):
    return tuple(families.LayerForm(name, passes, once) for name, passes in of_transformers)


@pytest.mark.parametrize("family", sorted(families.CASES))
def test_forms_change_the_graph_and_keep_its_outputs(family):
    graph, forms = small(family)
    feeds = random_feeds(graph)
    (expected,) = run_graph(graph, feeds)
    for form in forms:
        after = families.rewritten(graph, form)
        assert after.hash != graph.hash, form.name
        (found,) = run_graph(after, feeds)
        assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max(), form.name


def test_forms_in_a_row_cancel_what_lies_between():
    graph, forms = small("dilation")
    assert ops(families.rewritten(graph, forms[0])).count("Transpose") == 2
    graph, forms = small("channel_padding")
    assert "Slice" in ops(families.rewritten(graph, families.PADDED[0]))  # the result has channels that fill no block


def test_a_form_without_a_site_gives_the_graph_itself():
    graph = families.layers(12, (8, 8), (3, 3))
    assert families.rewritten(graph, families.WINOGRAD[0]) is graph


def row(family, speedup):
    return families.LayerRow(family, "16 @ 8x8", "Rows2", 1.0, speedup, speedup - 0.1, speedup + 0.1, 1e-7, 30)


def test_writing_replaces_the_rows_of_measured_families_only(tmp_path, monkeypatch):
    page = tmp_path / "families.md"
    page.write_text(f"# Families\n\n{families.MARK}\nold\n")
    monkeypatch.setattr(families, "PAGE", page)
    monkeypatch.setattr(families, "FILE", tmp_path / "results" / "families.json")
    families.write([row("winograd", 1.5), row("dilation", 1.2)])
    families.write([row("winograd", 2.0)])
    held = json.loads(families.FILE.read_text())["rows"]
    assert [(entry["family"], entry["speedup"]) for entry in held] == [("dilation", 1.2), ("winograd", 2.0)]
    text = page.read_text()
    assert text.startswith("# Families")
    assert "old" not in text
    assert "| 16 @ 8x8 | Rows2 | 1.00 ms | 2.00 | 1.90 to 2.10 | 1e-07 | 30 |" in text
    assert {path.name for path in tmp_path.iterdir()} == {"families.md", "results"}  # no temporary file is left


def test_layers_run_in_the_runtime_that_is_asked_for(monkeypatch):
    asked = []

    def opened(path, deployment, feeds):
        asked.append(deployment.provider)
        raise InterruptedError

    monkeypatch.setattr(families, "Runner", opened)
    monkeypatch.setattr("sys.argv", ["families", "--family", "residual", "--provider", "openvino"])
    with pytest.raises(InterruptedError):
        families.main()
    assert asked == ["openvino"]


def test_the_page_has_tables_of_onnx_runtime_alone(monkeypatch):
    monkeypatch.setattr("sys.argv", ["families", "--write", "--provider", "openvino"])
    with pytest.raises(SystemExit, match="--write"):
        families.main()
