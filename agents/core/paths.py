"""The folders of configurations, trained policies and recorded results: in a wheel inside this package, in a clone
beside it."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def configs() -> Path:
    """Return the folder of YAML configurations. Raises FileNotFoundError where the installation has none."""
    return _data("configs")


def checkpoints() -> Path:
    """Return the folder of trained policies. Raises FileNotFoundError where the installation has none."""
    return _data("checkpoints")


def known_results() -> Path:
    """Return the folder of recorded results that searches may begin with. Raises FileNotFoundError where the
    installation has none."""
    return _data("known_results")


def _data(name: str) -> Path:
    # A wheel's own copy comes first: beside an installed package lie other distributions' folders.
    places = (_PACKAGE / name, _PACKAGE.parent / name)
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"found no folder {name!r}: looked for {' and '.join(map(str, places))}; reinstall rewritegym"
    )
