"""The tables in the docs are rendered from stored records, never typed."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from covey.core import atomic

from .summaries import with_rows
from .terminal import best_first, by_ceiling, by_family, markdown, metered

# What is shown, the record, and labels of rows where only these are shown: <!-- kind:record | row | row -->
MARK = re.compile(r"(<!-- (\w+):([\w-]+)((?: \| [^|\n]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
Shown = Mapping[str, Callable[[Any], str]]  # what a mark asks for -> a record as Markdown
SHOWN: dict[str, Callable[[Any], str]] = {
    "table": markdown,
    "traffic": metered,
    "families": by_family,
    "best": best_first,
    "shares": by_ceiling,
}


def render(docs: Path, results: Path, shown: Shown = SHOWN) -> list[Path]:
    """Puts every stored table between its marks, in all pages of a folder or in one; returns those that changed."""

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
