"""Builds HTML and SVG; text that is not markup is escaped. A page is self-contained.

Style and script are inside it, and nothing is fetched.
"""

import base64
import hashlib
import html
import math
from collections.abc import Iterable
from importlib import resources

from covey import __version__

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


def page(heading: str, *parts: Child) -> str:
    """Return a whole page: its heading, the parts below it, and the version of covey."""
    files = resources.files(__package__)
    style, script = (files.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # If unescaped text ever got through, the browser would fetch nothing and run this script only.
    only = f"script-src 'sha256-{digest}'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; {only}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=Html(policy)),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", f"{heading} – Covey"),
        tag("style", Html(style)),
    )
    made = f"Made by covey {__version__}. This page fetches nothing and sends nothing."
    body = tag(
        "body",
        tag("main", tag("header", tag("h1", heading)), *parts),
        tag("footer", made),
        tag("div", id="tip", role="status", hidden="hidden"),
        tag("script", Html(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def section(title: str, *parts: Child) -> Html:
    return tag("section", tag("h2", title), *parts)


def aside(*parts: Child) -> Html:
    """Return a remark in small print."""
    return tag("p", *parts, class_="aside")


def figure(caption: Child, *parts: Child) -> Html:
    return tag("figure", tag("figcaption", caption), *parts)


def gallery(figures: Iterable[Child], kind: str = "") -> Html:
    """Return figures side by side, as many as fit."""
    return tag("div", *figures, class_=f"figures-row {kind}".strip())


def folded(summary: Child, *parts: Child) -> Html:
    """Return parts that are hidden until the summary is clicked."""
    return tag("details", tag("summary", summary), *parts)


def legend(names: Iterable[tuple[str, int | str]]) -> Html:
    """Return a legend of names, each with the number of its colour or the class of its mark."""
    keys = ((name, f"c{of % 8}" if isinstance(of, int) else of) for name, of in names)
    items = (tag("li", tag("span", class_=f"key {kind}"), name) for name, kind in keys)
    return tag("ul", *items, class_="legend")


def badge(words: str, kind: str = "") -> Html:
    """Return one or two words in colour; `kind` is good (green), bad (red) or empty."""
    return tag("span", words, class_=f"badge {kind}".strip())


def bar(share: float) -> Html:
    """Return a share as a bar below its figure."""
    width = 0.0 if math.isnan(share) else min(max(share, 0.0), 1.0)
    return tag("span", class_="bar", style=f"--w:{width:.1%}")


def listed(items: Iterable[Child], kind: str | None = None) -> Html:
    return tag("ul", *(tag("li", item) for item in items), class_=kind)
