"""The tables in the docs are rendered from stored records, never typed."""

import json
import re
from pathlib import Path

from .. import atomic
from .show import markdown

MARK = re.compile(r"(<!-- table:([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(docs: Path, results: Path) -> list[Path]:
    """Puts every stored table between its marks; returns the pages that changed."""

    def stored(mark: re.Match[str]) -> str:
        file = results / f"{mark[2]}.json"
        return f"{mark[1]}{markdown(json.loads(file.read_text('utf-8')))}\n{mark[3]}" if file.exists() else mark[0]

    changed = []
    for page in sorted(docs.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = MARK.sub(stored, old)
        if new != old:
            atomic.write_text(page, new)
            changed.append(page)
    return changed
