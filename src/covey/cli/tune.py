"""`covey tune`: equal-budget search for a method's options, on validation only."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from covey.core import CoveyError, atomic, toml_writer

from . import arguments


def act(options: argparse.Namespace) -> int:
    from covey.run.config.compose import checked
    from covey.study.tuning.space import space_of

    tree = arguments.composed(options, label=Path(options.method).stem)
    space = space_of(options.method, options.space)
    import torch

    from covey.study.tuning.search import Search, search, summary
    from covey.study.tuning.terminal import table

    tree = checked(tree, options.set).tree
    plan = Search(tree, *space, options.trials, options.seeds)
    parts = filter(None, (options.method, plan.config.data.name, options.preset))
    out = options.out or Path("runs/tune") / "-".join(Path(part).stem for part in parts)
    if options.write_preset:
        _check_writable(options.write_preset)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        trials = search(plan, out, options.jobs, arguments.reporter(options))
    except KeyboardInterrupt:
        print(f"covey: stopped; the same command goes on with {out}", file=sys.stderr)
        return 130
    result = {**summary(plan, trials), "out": str(out), "written": str(options.write_preset or "")}
    if options.write_preset:
        _write(options.write_preset, plan, trials)
    print(json.dumps(result) if options.json else table(result))
    return 0


def _check_writable(path: Path) -> None:
    """Refuses, before the search, to overwrite a file that tuning did not write."""
    from covey.run.config.tree import parse

    if path.suffix != ".toml":
        raise CoveyError(f"{path} is no name of a preset; give one that ends in .toml")
    if not path.parent.is_dir():
        missing = f"there is no folder {path.parent} to write {path.name} to"
        raise CoveyError(f"{missing}; make it, or choose another")
    if path.exists() and "tuned" not in parse(path):
        raise CoveyError(f"{path} exists and is not from covey tune; choose another --write-preset")


def _write(path: Path, plan: Any, trials: Any) -> None:
    from covey.core.provenance import commit
    from covey.study.tuning.search import preset_of

    tree = preset_of(plan, trials, commit())
    head = "# {method} tuned on {dataset}: {trials} trials, {metric} on validation.\n"
    atomic.write_text(path, head.format(**tree["tuned"]) + toml_writer.dumps(tree))
