"""HTML that is escaped by construction: texts become markup only through `tag`."""

from __future__ import annotations

from graph_rewrite.rulebook.values import escaped

_VOID = frozenset({"meta", "br", "hr"})


class Html(str):
    """Markup. Any other text is escaped where it becomes part of markup."""

    __slots__ = ()


def html(content: object) -> Html:
    """Return markup as it is, and anything else as escaped text; None is nothing."""
    if isinstance(content, Html):
        return content
    return Html("" if content is None else escaped(str(content)))


def join(*contents: object) -> Html:
    """Return contents one after another."""
    return Html("".join(map(html, contents)))


def tag(name: str, /, *contents: object, **attributes: object) -> Html:
    """Return an element. `class_` stands for `class`, and `aria_label` for `aria-label`; an attribute that is True has
    no value, one that is None or False is left out."""
    parts = [name]
    for key, value in attributes.items():
        label = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(label)
        elif value is not None and value is not False:
            parts.append(f'{label}="{escaped(str(value))}"')
    head = f"<{' '.join(parts)}>"
    return Html(head) if name in _VOID else Html(f"{head}{join(*contents)}</{name}>")


def figure(value: float, text: str) -> Html:
    """Return a number as it is shown, with its exact value for machines."""
    return tag("data", text, value=repr(value))


def table(head: tuple[object, ...], rows: list[tuple[object, ...]], *, numbers: int = 0, caption: str = "") -> Html:
    """Return a table that scrolls where it is too wide. The last `numbers` columns are aligned to the right; the first
    cell of a row is its heading, and `head` those of the columns, empty for none."""
    columns = len(rows[0]) if rows else len(head)
    kinds = ["num" if i >= columns - numbers else None for i in range(columns)]
    cells = [tag("th", cell, scope="col", class_=kind) for cell, kind in zip(head, kinds, strict=False)]
    top = tag("thead", tag("tr", *cells)) if cells else None
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", c, class_=k) for c, k in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    named = tag("caption", caption) if caption else None
    # Keyboards scroll what has the focus.
    return tag(
        "div", tag("table", named, top, tag("tbody", *body)), class_="scroll", tabindex="0",
        role="region", aria_label=caption or "table",
    )  # fmt: skip
