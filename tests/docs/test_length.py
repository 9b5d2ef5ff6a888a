"""The pages stay short: what somebody has to read and maintain, without rendered records."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
LIMIT = 60_000  # words of all pages together
RENDERED = re.compile(r"^<!-- (?!end)[^\n]+ -->\n.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)


def words(page: str) -> int:
    """Count the words outside of blocks that commands render from stored records."""
    return len(RENDERED.sub("", page).split())


def test_rendered_tables_do_not_count() -> None:
    table = "<!-- table:a-b | one | two -->\n| 1 | 2 |\n<!-- end -->\n"
    assert words(f"Two words.\n\n{table}\nThree more words.\n\n{table}") == 5
    assert words("A mark without its end counts:\n<!-- table:a-b -->\nthis too\n") == 11


def test_the_pages_have_few_words() -> None:
    length = {path.name: words(path.read_text(encoding="utf-8")) for path in DOCS.rglob("*.md")}
    longest = sorted(length, key=lambda name: -length[name])[:5]
    assert 1_000 < sum(length.values()) <= LIMIT, f"shorten; the longest are {longest}"
