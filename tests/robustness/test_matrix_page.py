"""The page of a matrix: cells, colours, maps; a browser fetches nothing to show it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import NEEDED, browse, console
from covey.core.errors import CoveyError
from covey.data.dataset import Dataset
from covey.study.batch import one
from covey.study.matrix.formatting import defence_summaries, markdown
from covey.study.matrix.map_page import Items
from covey.study.matrix.page import page
from covey.study.matrix.plan import MatrixOptions, Plan, planned, rows_of, with_names
from covey.study.matrix.record import before_and_after, best, record, tables_of, without_curves
from covey.study.papers.docs import render
from covey.study.report.items import table_of
from report_runs import EVIL, ITEMS, dataset

ROOT = Path(__file__).parents[2]


class Made:
    """A matrix with a filter, a rule and a failed cell; the title of the target is a script."""

    def __init__(self, folder: Path) -> None:
        data = dataset(folder / "tales.npz")
        replace(Dataset.load(data), items=np.array([f"i{n}" for n in range(ITEMS)])).save(data)
        wish = MatrixOptions(
            "fedncf-sum",
            str(data),
            attacks=("a-ra", "sign-flip"),
            defences=("median", "union"),
            share=0.1,
            targets="0,1",
            rounds=2,
            set=("model.dim=4", "solver.lr=0.05", "run.cohort=16"),
        )
        self.plan: Plan = planned(wish)
        runs: dict[tuple[str, str], Any] = {}
        for attack in self.plan.attacks:
            for defence in self.plan.defences:
                name = f"{attack.label} {defence.label}"
                runs[attack.label, defence.label] = [
                    one(self.plan.config(attack, defence, 0), folder / name)
                ]
        self.record = record(self.plan, runs)
        self.items = Items(
            self.plan.count_I, [EVIL, *(f"tale {i}" for i in range(1, 30))], self.plan.targets, 5
        )
        tables = {
            pair: table for pair, m in tables_of(runs).items() if (table := table_of(m)) is not None
        }
        self.rows = before_and_after(self.record, tables, self.items, 10)
        self.text = page(self.record, 10, (self.items, self.rows))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("matrix"))


def test_a_target_has_its_row_its_id_and_its_title(made: Made) -> None:
    """Also where it was named by its id; a record that has none still says which row it is."""
    own = [target["id"] for target in made.record["targets"]]
    assert own == ["i0", "i1"] and [target["item"] for target in made.record["targets"]] == [0, 1]
    by_id = replace(made.plan.request, targets="id:i1, 0")
    assert planned(by_id).targets == (0, 1) and "--targets 'id:i1, 0'" in by_id.command()
    name = "row 1, id i1 (Tale &amp; Song 1), which "
    assert name in made.text and name in markdown(made.record)
    older = json.loads(json.dumps(made.record))
    del older["targets"][1]["id"]
    assert "row 1 (Tale &amp; Song 1), which " in markdown(older)


def test_names_of_targets_on_maps() -> None:
    assert with_names(["a", "b"], ["x", "y"], [1]) == ["a", "row 1, id y (b)"]
    assert with_names(["item x", "item y"], ["x", "y"], [1]) == ["item x", "row 1, id y"]
    assert with_names(["item 0", "item 1"], None, [1]) == ["item 0", "row 1"]
    with pytest.raises(CoveyError, match="the dataset is not available"):
        rows_of("id:x", None, 2, "lost")


def cell(made: Made, attack: str, defence: str) -> dict[str, Any]:
    return dict(made.record["cells"][attack][defence])


def test_every_pair_has_its_cell(made: Made) -> None:
    heats = re.findall(r'<td class="heat er" style="--s:(\d+)%">([\d.]+)', made.text)
    ers = [
        cell(made, a, d)["last"]["er@10"]["mean"]
        for a in made.record["cells"]
        for d in made.record["cells"][a]
    ]
    assert [f"{er:.3f}" for er in ers] == [text for _, text in heats]
    assert [round(100 * er) for er in ers] == [int(share) for share, _ in heats]
    assert made.text.count('class="heat cost"') == 9
    assert "Detection, and rows with too few uploads" in made.text
    assert "CPU seconds of a run" in made.text and "covey matrix --method fedncf-sum" in made.text


def test_what_filters_and_rules_say(made: Made) -> None:
    """The median counts rows; UNION leaves out clients; where there is nothing, nothing is said."""
    assert all(n > 0 for n in cell(made, "a-ra", "median")["fell_back"])
    assert cell(made, "a-ra", "no defence")["fell_back"] == [None]
    assert cell(made, "a-ra", "median")["recall"]["mean"] is None
    filtered = [cell(made, attack, "union") for attack in ("a-ra", "sign-flip")]
    assert any(any(one["left_out"]) for one in filtered)
    assert all(0 <= one["recall"]["mean"] <= 1 for one in filtered)


def test_maps_come_before_and_after(made: Made) -> None:
    assert [attack for attack, _ in made.rows] == ["a-ra", "sign-flip"]
    for attack, maps in made.rows:
        names = [one.name for one in maps]
        assert names[:2] == ["nobody attacks", f"{attack}, no defence"]
        assert names[2] in (f"{attack}, median", f"{attack}, union")
        assert len({one.explained for one in maps}) == 1  # the same directions
    assert made.text.count('class="figure hover map"') == 6
    assert made.text.count('class="dot target') == 12


def test_the_best_defence_is_that_with_least_exposure(made: Made) -> None:
    rigged = json.loads(json.dumps(made.record))
    for attack in ("a-ra", "sign-flip"):
        for defence, er, accuracy in (("median", 0.1, 0.2), ("union", 0.4, 0.3)):
            of = rigged["cells"][attack][defence]
            of["highest"]["er@10"]["mean"], of["last"][rigged["metric"]]["mean"] = er, accuracy
    assert best(rigged, "a-ra", ["median", "union"], 10) == ["median"]
    assert best(rigged, "sign-flip", ["median", "union"], 10) == ["union"]  # no target: by accuracy
    assert best(rigged, "a-ra", [], 10) == []
    sight = {one.defence: one for one in defence_summaries(rigged, 10)}
    assert (sight["median"].worst, sight["union"].worst, sight["union"].least) == (0.1, 0.4, 0.3)


def test_a_hole_says_why_in_its_cell(made: Made) -> None:
    broken = json.loads(json.dumps(made.record))
    hole = broken["cells"]["a-ra"]["union"]
    empty = {"mean": None, "spread": None, "values": []}
    hole |= {
        "seeds": [],
        "curve": [],
        "errors": [{"seed": 0, "error": "<b>no</b> fit"}],
        "cpu_seconds": empty,
    }
    hole |= {when: dict.fromkeys(hole[when], empty) for when in ("last", "selected", "highest")}
    text = page(broken, 10)
    assert (
        '<td class="hole">✗1<small>&lt;b&gt;no&lt;/b&gt; fit</small></td>' in text
        and "<b>no</b>" not in text
    )
    assert "<li>✗1 &lt;b&gt;no&lt;/b&gt; fit</li>" in text
    assert "✗1" in markdown(broken) and "- ✗1 &lt;b&gt;no&lt;/b&gt; fit" in markdown(broken)


def test_the_docs_are_rendered_from_a_record(made: Made, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text(
        "<!-- matrix:matrix-x -->\nold\n<!-- end -->\n<!-- matrix:none -->\n<!-- end -->\n"
    )
    (tmp_path / "matrix-x.json").write_text(json.dumps(without_curves(made.record)))
    assert markdown(without_curves(made.record)) == markdown(made.record)
    assert render(docs, tmp_path, {"matrix": markdown}) == [docs / "page.md"]
    text = (docs / "page.md").read_text()
    assert "old" not in text and text.count("| nobody attacks |") == 3
    head = "| ER@10 of the target, last round (highest of all evaluations) | no defence |"
    assert f"{head} median | union |" in text
    assert text.endswith("<!-- matrix:none -->\n<!-- end -->\n")
    assert render(docs, tmp_path, {"matrix": markdown}) == []


def test_the_projects_pages_show_what_is_stored(tmp_path: Path) -> None:
    pages = [
        p for p in (ROOT / "docs").rglob("*.md") if "<!-- matrix:" in p.read_text(encoding="utf-8")
    ]
    assert pages
    for path in pages:
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    assert render(tmp_path, ROOT / "results", {"matrix": markdown}) == []


@NEEDED
def test_it_renders(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "matrix.html"
    path.write_text(made.text, encoding="utf-8")
    done = browse(tmp_path / "profile", path, "--dump-dom", "--virtual-time-budget=2000")
    assert done.returncode == 0, done.stderr
    assert not console(done.stderr)
    assert '<html lang="en" class="ready">' in done.stdout  # the script ran to its end
    headings = set(re.findall(r"<h2>(.*?)</h2>", done.stdout))
    assert {"Exposure of the target", "Accuracy", "Round by round", "Item maps"} <= headings
    assert done.stdout.count("<script>") == 1 and "<img" not in done.stdout


@NEEDED
def test_nothing_is_wider_than_a_phone(made: Made, tmp_path: Path) -> None:
    """A script of the test's own writes down how wide the page became."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", made.text)
    title = "document.title = document.documentElement.scrollWidth - innerWidth;"
    measure = f"<script>{title}</script></body>"
    probe = tmp_path / "probe.html"
    probe.write_text(text.replace("</body>", measure), encoding="utf-8")
    done = browse(
        tmp_path / "profile",
        probe,
        "--dump-dom",
        "--virtual-time-budget=2000",
        "--window-size=500,900",
    )
    assert "<title>0</title>" in done.stdout
