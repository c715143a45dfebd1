"""Public names of a package are imported when they are first used, and no sooner."""

import subprocess
import sys

import pytest

import graph_rewrite
import rewritegym


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, rewritegym\n"
        "assert 'graph_rewrite.ir.graph' not in sys.modules and 'Graph' not in vars(rewritegym)\n"
        "assert rewritegym.Graph is rewritegym.Graph and 'Graph' in vars(rewritegym)\n"
        "assert 'graph_rewrite.ir.graph' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", [graph_rewrite, rewritegym])
def test_all_names_are_offered(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert set(names) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in names)


@pytest.mark.parametrize("package", [graph_rewrite, rewritegym])
def test_another_name_is_an_error_that_lists_them(package: object) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'Grpah'; it offers .*Graph, "):
        _ = package.Grpah  # type: ignore[attr-defined]
