"""HTML and SVG by construction: text is escaped unless it was made here."""

import html

Child = str | float | int | None
VOID = frozenset({"meta", "input"})  # elements that have no content and no end


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: Child) -> Html:
    """Markup stays, nothing becomes nothing, everything else is escaped."""
    if isinstance(value, Html):
        return value
    return Html("" if value is None else html.escape(str(value), quote=True))


def join(*parts: Child) -> Html:
    return Html("".join(text(part) for part in parts))


def tag(name: str, *children: Child, **attributes: Child) -> Html:
    """`class_` gives class, `data_t` gives data-t; an attribute that is None is left out."""
    given = "".join(
        f' {key.strip("_").replace("_", "-")}="{text(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>" + ("" if name in VOID else f"{join(*children)}</{name}>"))


def _short(value: Child) -> Child:
    """Coordinates need no more than a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
