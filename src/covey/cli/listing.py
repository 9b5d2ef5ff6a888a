"""`covey list`: the methods, presets and other configurations that come with covey."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError

from . import data


def act(options: argparse.Namespace) -> int:
    if options.papers and options.what != "papers":
        why = f"--papers is for covey list papers, and changes no list of {options.what}"
        raise CoveyError(f"{why}; leave it out")
    if options.what == "papers":
        rows = _papers(options.papers)
    else:
        made = {"methods": _methods, "datasets": _datasets}
        rows = made[options.what]() if options.what in made else _files(options.what)
    print(json.dumps(rows) if options.json else "\n".join(_lines(rows)))
    return 0


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    import textwrap

    out = []
    for row in rows:
        out += textwrap.wrap(f"{row['name']}: {row['what']}", 80, subsequent_indent="    ")
        for key, text in row.items():
            if key not in ("name", "what") and text:
                lines = textwrap.wrap(f"{key}: {text}", 72, subsequent_indent="  ")
                out += [f"    {line}" for line in lines]
    return out


def _methods() -> list[dict[str, Any]]:
    from covey.run.config.schema import Config
    from covey.run.config.shipped import read, shipped

    rows = []
    for name in shipped("methods"):
        config = Config.of(read("methods", name))
        row = {"name": name, "what": config.tree.get("title", "")}
        row |= {"paper": config.tree.get("paper", ""), "leaves the device": _disclosed(config)}
        sections = [(k, v) for k, v in config.tree.items() if isinstance(v, dict) and "use" in v]
        sections += [("mechanism", v) for v in config.tree.get("mechanism", [])]
        options = (f"{at}.{k}" for at, section in sections for k in section if k != "use")
        rows.append(row | {"options": ", ".join(options)})
    return rows


def _disclosed(config: Any) -> str:
    if "pooled" in config.tree:
        return "everything: it trains on pooled data"
    from covey.core.messages import Catalogue
    from covey.run.assemble import method_of, program_of

    method = method_of(config, Catalogue(1))
    program = program_of(method, config.evaluate, config.engine, 0)
    return ", ".join(d.name for d in program.disclosures() if d.step != "evaluate") or "nothing"


def _files(kind: str) -> list[dict[str, Any]]:
    from covey.run.config.shipped import shipped
    from covey.run.config.tree import parse

    rows = []
    for name, path in shipped(kind).items():
        comments = (line[2:] for line in path.read_text().splitlines() if line.startswith("# "))
        rows.append({"name": name, "what": parse(path).get("title", next(comments, ""))})
    return rows


def _papers(place: Path | None) -> list[dict[str, Any]]:
    from covey.run.config.tree import parse
    from covey.study.papers.folder import papers

    return [
        {"name": f"{paper} {path.stem}", "what": parse(path)["title"]}
        for paper, folder in papers(place).items()
        for path in sorted(folder.glob("*.toml"))
    ]


def _datasets() -> list[dict[str, Any]]:
    here = (row for row in data.known() if row["here"] != "no")
    return [{"name": r["name"], "what": r["title"] or "your own", "where": r["here"]} for r in here]
