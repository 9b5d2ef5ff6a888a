"""`covey list`: what comes with covey, one line each."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "list", help="what there is to run", epilog="example: covey list methods"
    )
    command.add_argument(
        "what", choices=("methods", "presets", "papers", "attacks", "defences", "datasets")
    )
    command.add_argument(
        "--papers", type=Path, metavar="DIR", help="of papers: where they are, if not in a checkout"
    )
    command.add_argument("--json", action="store_true", help="print as JSON")
    command.set_defaults(act=_list)


def _list(options: argparse.Namespace) -> int:
    if options.papers and options.what != "papers":
        raise CoveyError(
            f"--papers is for covey list papers, and changes no list of {options.what}; leave it out"
        )
    special = {
        "methods": _methods,
        "papers": lambda kind: _papers(options.papers),
        "datasets": _datasets,
    }
    rows = special.get(options.what, _files)(options.what)
    print(json.dumps(rows) if options.json else "\n".join(_lines(rows)))
    return 0


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each entry in as many lines of 80 columns as it needs."""
    import textwrap

    out = []
    for row in rows:
        out += textwrap.wrap(f"{row['name']}: {row['what']}", 80, subsequent_indent="    ")
        for key, text in row.items():
            if key not in ("name", "what") and text:
                out += textwrap.wrap(
                    f"{key}: {text}", 76, initial_indent="    ", subsequent_indent="      "
                )
    return out


def _methods(kind: str) -> list[dict[str, Any]]:
    from covey.run.config.schema import Config
    from covey.run.config.shipped import read, shipped

    return [_method(name, Config.of(read("methods", name))) for name in shipped("methods")]


def _method(name: str, config: Any) -> dict[str, Any]:
    tree = config.tree
    row = {"name": name, "what": tree.get("title", ""), "paper": tree.get("paper", "")}
    if "pooled" in tree:
        return row | {
            "leaves the device": "everything: it trains on pooled data",
            "options": _options(tree),
        }
    from covey.core.messages import Catalogue
    from covey.run.assemble import method_of, program_of

    method = method_of(config, Catalogue(1))
    program = program_of(method, config.evaluate, config.engine, 0)
    fields = [d.name for d in program.disclosures() if d.step != "evaluate"]
    return row | {"leaves the device": ", ".join(fields) or "nothing", "options": _options(tree)}


def _options(tree: dict[str, Any]) -> str:
    sections = [(k, v) for k, v in tree.items() if isinstance(v, dict) and "use" in v]
    sections += [("mechanism", v) for v in tree.get("mechanism", [])]
    return ", ".join(
        f"{name}.{key}" for name, section in sections for key in section if key != "use"
    )


def _files(kind: str) -> list[dict[str, Any]]:
    from covey.run.config.shipped import shipped
    from covey.run.config.tree import parse

    rows = []
    for name, path in shipped(kind).items():
        tree = parse(path)
        first = next(
            (line[2:] for line in path.read_text().splitlines() if line.startswith("# ")), ""
        )
        rows.append({"name": name, "what": tree.get("title", first)})
    return rows


def _papers(place: Path | None) -> list[dict[str, Any]]:
    from covey.run.config.tree import parse
    from covey.study.papers.folder import papers

    files = [
        (paper, path)
        for paper, folder in papers(place).items()
        for path in sorted(folder.glob("*.toml"))
    ]
    return [{"name": f"{paper} {path.stem}", "what": parse(path)["title"]} for paper, path in files]


def _datasets(kind: str) -> list[dict[str, Any]]:
    import os

    from covey.data.folder import available

    rows = [
        {
            "name": "synthetic",
            "what": "built in: taste groups, any size by data.users, data.items, data.mean_items",
        }
    ]
    root = os.environ.get("COVEY_DATA", "")
    return rows + [
        {"name": name, "what": f"a folder under {root}"}
        for name in (available(root) if root else [])
    ]
