"""The totals on the privacy page are what the plans of the shipped configurations add up to."""

import os
import re
from pathlib import Path

import pytest

from covey.contract.ledger import INFINITE, Ledger
from covey.core.messages import Catalogue
from covey.engine.client.blocks import Engine
from covey.evaluate.metrics import EvaluateConfig
from covey.run.assemble import clients_of, fleet_of, method_of, prepare, program_of
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import assign, merge
from covey.run.privacy_budget import of_planned, sums

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
PAPERS = ("cl4fedrec", "fedcl", "pdc-frs", "cofedrec")


def planned(config: Config) -> Ledger:
    prepared = prepare(config)
    method = method_of(config, prepared.catalogue)
    people = clients_of(config, prepared, method)
    ids_N = fleet_of(config, people).ids_N
    longest = int(prepared.split.train.lengths.max())
    return of_planned(config, method, people.population, ids_N, longest)


def row(name: str) -> str:
    ledger = planned(Config.of(read("methods", name)))
    owed, says = ledger.summary(), "; ".join(sums(ledger)) or "nothing"
    total = "none" if owed["unprotected"] else f"{owed['epsilon_user']:,g}"
    total += (
        f" (of what has one: {owed['epsilon_user']:,g})"
        if owed["unprotected"] and owed["epsilon_user"]
        else ""
    )
    return f"| `{name}` | {says} | {total} | {len(owed['unprotected'])} |"


def promises(name: str) -> bool:
    tree = read("methods", name)
    if "pooled" in tree:
        return False
    program = program_of(method_of(Config.of(tree), Catalogue(1000)), EvaluateConfig(), Engine(), 0)
    return any(d.epsilon < INFINITE for d in program.disclosures())


def test_the_table_is_what_the_plans_add_up_to() -> None:
    (shown,) = re.findall(
        r"<!-- totals -->\n[^\n]*\n[^\n]*\n(.*?)<!-- /totals -->",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    others = [name for name in shipped("methods") if name not in PAPERS and promises(name)]
    want = "\n".join(map(row, [*PAPERS, *others]))
    assert shown.strip() == want, f"put this between the marks of docs/privacy.md:\n{want}"


def test_figures_of_movielens() -> None:
    if not Path(os.environ.get("COVEY_DATA", ""), "ml-1m").is_dir():
        pytest.skip("COVEY_DATA has no ml-1m")
    tree = merge(read("methods", "pdc-frs"), read("presets", "ratio-full"))
    ledger = planned(Config.of(assign(tree, ["data.name=ml-1m"])))
    assert ledger.summary()["epsilon_user"] == 5 * 1666
    assert "5 x 1,666 = 8,330" in PAGE.read_text(encoding="utf-8")
