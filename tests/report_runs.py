"""Run folders for the tests of the report, and its commands as they are called."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from covey.cli import pages
from covey.cli.arguments import add
from covey.data.dataset import Dataset
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import merge
from covey.run.loop import run

EVIL = '</script><script>document.title="x"</script><img src=x onerror="document.title=1">'
USERS, ITEMS = 24, 30


def dataset(path: Path, n_items: int = ITEMS) -> Path:
    """Every user has item 0 and a few others; the title of item 0 is a script."""
    dice = np.random.default_rng(0)
    own = [np.r_[0, dice.choice(np.arange(1, n_items), 5, replace=False)] for _ in range(USERS)]
    titles = (EVIL, *(f"Tale & Song {i}" for i in range(1, n_items)))
    time_E = np.tile(np.arange(6.0), USERS)
    Dataset(
        "tales",
        USERS,
        n_items,
        np.repeat(np.arange(USERS), 6),
        np.concatenate(own),
        time_E,
        titles=titles,
    ).save(path)
    return path


def make(
    folder: Path, data: Path, method: str = "fedmf", seed: int = 0, **sections: dict[str, Any]
) -> Path:
    """A small run of a shipped method."""
    tree = merge(read("methods", method) | {"method": method}, {"data": {"name": str(data)}})
    measured = {"metrics": ["recall@5", "ndcg@5"], "every": 1, "unit": "round"}
    tree = merge(tree, {"run": {"rounds": 3, "seed": seed}, "evaluate": measured})
    if "pooled" not in tree:
        tree = merge(tree, {"model": {"rank" if "rank" in tree["model"] else "dim": 4}})
    run(Config.of(merge(tree, sections)), folder)
    return folder


def lengthen(folder: Path, rounds: int) -> None:
    """As if the run had taken so many rounds."""
    metrics, result = folder / "metrics.jsonl", folder / "result.json"
    row = json.loads(metrics.read_text().splitlines()[0])
    metrics.write_text("".join(json.dumps(row | {"round": r}) + "\n" for r in range(1, rounds + 1)))
    spent = folder / "rounds.jsonl"
    row = json.loads(spent.read_text().splitlines()[-1])
    spent.write_text("".join(json.dumps(row | {"round": r}) + "\n" for r in range(rounds + 1)))
    done = json.loads(result.read_text()) | {"rounds": rounds, "round": rounds // 2}
    result.write_text(json.dumps(done))


def call(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    add(commands, "report", pages.report)
    add(commands, "compare", pages.compare)
    options = parser.parse_args([str(word) for word in arguments])
    return int(options.act(options))
