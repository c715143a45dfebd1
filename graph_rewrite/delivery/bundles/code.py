"""Code that opens the models of a bundle in its runtime alone, and chooses among them: Python, C++ and C#."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graph_rewrite.delivery.bundles.manifest import MANIFEST, Bundle, BundleModel
from graph_rewrite.delivery.deployment_code import deployment_code

_SESSION = "session = "
_CHOOSE = '''

def session_for(inputs):
    """Return the session for arrays by the name of their input."""
    for name, shapes in made_for.items():
        if all(inputs[key].shape == shape for key, shape in shapes.items()):
            return sessions[name]
    return sessions[{general}]
'''


def bundle_code(bundle: Bundle, custom_ops: Sequence[str] = ()) -> dict[str, str]:
    """Return code that opens a bundle with its runtime alone.

    In Python it makes `sessions` and a function `session_for(inputs)`. In C++ and C# it opens the model for all shapes,
    and says which files to open and to run for which shapes.

    Args:
        custom_ops: libraries with the models' operators of custom domains.

    Returns:
        The code by language: `python`, `cpp`, and with ONNX Runtime `csharp`.
    """
    libraries = tuple(custom_ops)
    general = _code(bundle, bundle.general, libraries)
    if not bundle.specialised:
        return general
    said = [f"// {_shown(model)}: {bundle.path(model).as_posix()}" for model in bundle.specialised]
    note = [
        "// This is the model for all shapes. For inputs of exactly the following shapes, open and run another file,",
        f"// with the deployment that {MANIFEST} has for it:", *said,
    ]  # fmt: skip
    others = {name: "\n".join([*note, "", text]) for name, text in general.items() if name != "python"}
    return {"python": _python(bundle, libraries), **others}


def _python(bundle: Bundle, libraries: tuple[str, ...]) -> str:
    first = _code(bundle, bundle.general, libraries)["python"].partition("\n")[0]
    parts = [f"{first}\n\nsessions = {{}}\n"]
    for model in bundle.models:
        head, _, last = _block(bundle, model, libraries).rpartition(_SESSION)
        title = f"inputs of these shapes: {_shown(model)}" if model.shapes else "inputs of any other shape"
        parts.append(f"# For {title}.\n{head}sessions[{_name(model)}] = {last}")
    made_for = "".join(f"    {_name(model)}: {_shapes(model)},\n" for model in bundle.specialised)
    parts.append(f"made_for = {{\n{made_for}}}\n")
    return "\n".join(parts) + _CHOOSE.format(general=_name(bundle.general))


def _block(bundle: Bundle, model: BundleModel, libraries: tuple[str, ...]) -> str:
    return _code(bundle, model, libraries)["python"].partition("\n")[2].lstrip()


def _code(bundle: Bundle, model: BundleModel, libraries: tuple[str, ...]) -> dict[str, str]:
    return deployment_code(replace(model.deployment, custom_ops=libraries), bundle.path(model))


def _name(model: BundleModel) -> str:
    return json.dumps(Path(model.file).stem, ensure_ascii=False)


def _shapes(model: BundleModel) -> str:
    shapes = (f"{json.dumps(name, ensure_ascii=False)}: {shape}" for name, shape in model.shapes.items())
    return f"{{{', '.join(shapes)}}}"


def _shown(model: BundleModel) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in model.shapes.items())
