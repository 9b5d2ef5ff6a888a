"""Builds HTML and SVG; text that is not markup is escaped."""

import html

Child = str | float | int | None
VOID = frozenset({"meta", "input"})  # elements without content and end tag


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: Child) -> Html:
    """Return markup unchanged, None as empty text, and anything else escaped."""
    if isinstance(value, Html):
        return value
    return Html("" if value is None else html.escape(str(value), quote=True))


def join(*parts: Child) -> Html:
    return Html("".join(text(part) for part in parts))


def tag(name: str, *children: Child, **attributes: Child) -> Html:
    """Return an element. `class_` becomes class, `data_t` data-t; None leaves an attribute out."""
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{text(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>" + ("" if name in VOID else f"{join(*children)}</{name}>"))


def _short(value: Child) -> Child:
    """Round coordinates to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
