"""Renders the tables of the docs from stored records."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from covey.core import atomic

from .summaries import with_rows
from .terminal import best_first, by_ceiling, by_family, markdown, metered

# The kind of table, the record, and rows if not all are shown: <!-- kind:record | row | row -->
MARK = re.compile(r"(<!-- (\w+):([\w-]+)((?: \| [^|\n]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
Shown = Mapping[str, Callable[[Any], str]]  # kind -> Markdown of a record
SHOWN: dict[str, Callable[[Any], str]] = {
    "table": markdown,
    "traffic": metered,
    "families": by_family,
    "best": best_first,
    "shares": by_ceiling,
}


def render(docs: Path, results: Path, shown: Shown = SHOWN) -> list[Path]:
    """Write every stored table between its marks; return the pages that changed.

    Args:
        docs: A page, or a folder of pages.
        results: The folder of records.
        shown: For each kind of table, the function that renders a record.
    """

    def stored(mark: re.Match[str]) -> str:
        file = results / f"{mark[3]}.json"
        if not file.exists() or mark[2] not in shown:
            return mark[0]
        record = json.loads(file.read_text("utf-8"))
        if mark[4]:
            record = with_rows(record, mark[4].removeprefix(" | ").split(" | "))
        return f"{mark[1]}{shown[mark[2]](record)}\n{mark[5]}"

    changed = []
    for page in [docs] if docs.is_file() else sorted(docs.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = MARK.sub(stored, old)
        if new != old:
            atomic.write_text(page, new)
            changed.append(page)
    return changed
