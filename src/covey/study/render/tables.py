"""Tables as Markdown, as HTML and in a terminal."""

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Literal

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from .markup import Child, Html, tag
from .units import escaped

Rows = Sequence[Sequence[Child]]


def markdown(head: Sequence[object], rows: Sequence[Sequence[object]], left: int = 1) -> str:
    """Return a Markdown table of escaped text; all but the first `left` columns are figures."""
    rule = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in (head, rule, *rows))


def table(head: Sequence[str], rows: Rows, left: int = 1, kind: str | None = None) -> Html:
    """Return an HTML table; all but the first `left` columns are figures. `kind`: its class."""
    body = (tag("tr", *_cells("td", row, left)) for row in rows)
    heading = tag("thead", tag("tr", *_cells("th", head, left)))
    return scrolling(tag("table", heading, tag("tbody", *body), class_=kind), ", ".join(head))


def _cells(name: str, row: Sequence[Child], left: int) -> list[Html]:
    return [tag(name, cell, class_=None if i < left else "num") for i, cell in enumerate(row)]


def scrolling(whole: Html, name: str) -> Html:
    """Wrap a table so that it scrolls on narrow pages, also by keyboard."""
    return tag("div", whole, class_="scroll", tabindex=0, role="group", aria_label=name.strip(", "))


class Screen:
    """Collects the text of a terminal of a fixed width; markup in names has no effect."""

    def __init__(self, width: int = 80) -> None:
        self._text = StringIO()
        options = {"markup": False, "emoji": False, "highlight": False}
        self._console = Console(file=self._text, width=width, **options)  # type: ignore[arg-type]

    def show(self, *what: RenderableType, end: str = "\n") -> None:
        """Add tables and lines, one below the other."""
        for one in what:
            self._console.print(one, end=end)

    def whole(self, line: str) -> None:
        """Add a line that is never wrapped, so that it can be copied."""
        self._console.print(line, soft_wrap=True)

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in self._text.getvalue().splitlines()).rstrip()


def open_table(
    first: str, *heads: str, title: str | None = None, rows: Iterable[Sequence[str]] = ()
) -> Table:
    """Return a table without a frame: names, which may wrap, then figures, which do not."""
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title)
    out.title_justify = "left"
    out.add_column(first, overflow="fold")
    for head in heads:
        out.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        out.add_row(*row)
    return out


def framed_table(title: str, *heads: str, left: int = 1) -> Table:
    """Return a table with a frame; all but the first `left` columns are figures, never wrapped."""
    out = Table(title=title)
    for i, head in enumerate(heads):
        justify: Literal["left", "right"] = "left" if i < left else "right"
        out.add_column(head, justify=justify, overflow="fold", no_wrap=i >= left)
    return out
