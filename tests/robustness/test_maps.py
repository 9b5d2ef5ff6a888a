"""Item maps: directions, marks and frames worked by hand, and the command that draws runs."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from command import Covey, expect_line, expect_nothing, sets
from covey.study.matrix.map_page import Directions, Items, Map, alikeness, draw, frame, markdown
from covey.study.papers.docs import render
from covey.study.report.items import principal, table_of

ROOT = Path(__file__).parents[2]
LINE = torch.tensor(
    [[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0], [6.0, 1.0, 1.0], [8.0, 0.0, 1.0]]
)
SMALL = (
    "data.users=30",
    "data.items=60",
    "data.mean_items=8",
    "model.dim=4",
    "run.ceilings=[]",
    "run.rounds=1",
)


def items(*targets: int, hot: int = 2) -> Items:
    return Items(
        torch.tensor([5.0, 1.0, 4.0, 0.0, 2.0]), [f"tale {i}" for i in range(5)], targets, hot
    )


def test_own_directions_are_those_of_most_variance() -> None:
    at = Directions.of(LINE)
    place_I2, explained = principal(LINE.double())
    torch.testing.assert_close(at.place(LINE), place_I2)
    assert at.explained == pytest.approx(explained) == pytest.approx(1.0)
    torch.testing.assert_close(at.axes_D2.T @ at.axes_D2, torch.eye(2, dtype=torch.float64))


def test_in_common_directions_a_moved_item_moves_alone() -> None:
    at, moved = Directions.of(LINE), LINE.clone()
    moved[3] += torch.tensor([0.0, 5.0, 0.0])
    gone_I2 = at.place(moved) - at.place(LINE)
    assert gone_I2[3].norm() == pytest.approx(5.0) and not gone_I2[[0, 1, 2, 4]].any()


def test_what_is_said_of_a_table() -> None:
    table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, 9.0], [0.0, 3.0]])
    one = Map.of("m", table, items(3))
    assert one.alike_hot == pytest.approx(1.0)  # items 0 and 2 point the same way
    assert one.alike_all == pytest.approx((1 + 3) / 10)  # of ten pairs, one and three
    assert one.long_target == pytest.approx(9 / 2)
    assert one.plain()["target_length"] == 4.5
    assert math.isnan(Map.of("m", table, items()).long_target)
    assert Map.of("m", table, items()).plain()["target_length"] is None
    assert alikeness(torch.ones(1, 2)) == 1.0


def test_popular_items_and_targets_are_marked() -> None:
    one = Map.of("m", LINE, items(3))
    drawn = draw(one, items(3), frame([one], items(3)))
    marks = dict(re.findall(r'class="dot (\w+)[^"]*" data-t="([^"]*)"', drawn))
    found = re.findall(r'class="dot (\w+)[^"]*" data-t="([^"(]*?)(?: \(|")', drawn)
    assert sorted(found) == [
        ("hot", "tale 0"),
        ("hot", "tale 2"),
        ("item", "tale 1"),
        ("item", "tale 4"),
        ("target", "target: tale 3"),
    ]
    assert marks["target"].startswith("target: tale 3")
    assert found[-1][0] == "target"  # on top of the others


def test_one_far_item_does_not_stretch_the_frame_and_stands_at_the_edge() -> None:
    torch.manual_seed(0)
    table = torch.randn(300, 4)
    many = Items(torch.arange(300.0), [f"tale {i}" for i in range(300)], (7,), 10)
    directions = Directions.of(table)
    pushed = table.clone()
    pushed[7] += 1000 * directions.axes_D2[:, 0].float()
    calm, after = (Map.of("m", t, many, directions) for t in (table, pushed))
    (left, right), _ = frame([calm, after], many)
    assert right - left < 12
    drawn = draw(after, many, frame([calm, after], many))
    (target,) = re.findall(r"<circle[^>]*dot target[^>]*>", drawn)
    assert (
        'class="dot target beyond"' in target
        and "(outside the frame)" in target
        and 'cx="406"' in target
    )
    assert "dot target beyond" not in draw(calm, many, frame([calm, after], many))


def test_of_many_items_some_are_drawn_from_popular_to_cold() -> None:
    many = Items(torch.arange(1000.0), [], (5,), 10)
    some = many.others(50).tolist()
    assert len(some) == 50 and some[0] == 989 and some[-1] == 0 and 5 not in some
    assert some == sorted(some, reverse=True)


def test_a_table_that_cannot_be_mapped_is_none() -> None:
    assert table_of({"items": LINE}) is LINE and table_of({}) is None
    assert table_of({"items": LINE[:1]}) is None and table_of({"items": LINE * torch.nan}) is None


def test_maps_of_runs(covey: Covey, tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("one", "two", "three")]
    for run, method in zip(runs, ("fedmf", "fedncf", "fedmf")):
        assert covey("run", "--method", method, *sets(*SMALL), "--out", run).code == 0
    page = tmp_path / "maps.html"
    said = covey("maps", *runs, "--hot", 5, "--targets", "id:8,7", "--out", page, "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)["maps"]
    assert [one["name"] for one in told] == ["fedmf (one)", "fedncf", "fedmf (three)"]
    assert told[0] == {**told[2], "name": "fedmf (one)"} and told[0]["target_length"] > 0
    text = page.read_text()
    assert (
        text.count("<svg") == 3
        and text.count('class="dot target') == 6
        and text.count('class="dot hot') == 15
    )
    assert 'data-t="target: row 7, id 7 (' in text
    stored = tmp_path / "results" / "maps.json"
    said = covey("maps", *runs[:2], "--axes", "first", "--out", page, "--results", stored)
    made = json.loads(stored.read_text())
    assert [one["rounds"] for one in made["maps"]] == [1, 1] and made["maps"][0]["config"][
        "method"
    ] == "fedmf"
    assert f"| fedncf | {made['maps'][1]['mean_cosine_popular']:.3f} |" in markdown(made)
    assert made["command"] == "covey maps one two --hot 100 --axes first"
    assert said.code == 0 and "fedncf: mean cosine between popular items" in said.out


def test_bad_maps_are_said(covey: Covey, tmp_path: Path) -> None:
    run, other, local = (tmp_path / name for name in ("run", "other", "local"))
    assert covey("run", "--method", "fedmf", *sets(*SMALL), "--out", run).code == 0
    assert (
        covey("run", "--method", "fedmf", *sets(*SMALL, "data.items=50"), "--out", other).code == 0
    )
    assert covey("run", "--method", "popularity", *sets(*SMALL[:3]), "--out", local).code == 0
    page = tmp_path / "maps.html"
    for words, message in (
        ((run, "--targets", "60"), "name items by row, from 0 to 59"),
        ((run, "--targets", "x"), "id in the data, such as id:50"),
        ((run, "--targets", "id:nothing"), "no item with that id"),
        ((run, other), "different items"),
        ((run, local), "no public item table"),
        ((run, "--hot", "0"), "at least 1"),
        ((tmp_path / "nowhere",), "there is no run folder"),
    ):
        expect_line(covey("maps", *words, "--out", page), message)
    expect_line(covey("maps", run, "--out", tmp_path / "maps.json"), "ends in .html")
    expect_nothing(page)


def test_the_projects_pages_show_what_is_stored(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        (ROOT / "docs/papers/cl4fedrec.md").read_text(encoding="utf-8"), encoding="utf-8"
    )
    assert "<!-- maps:cl4fedrec-maps -->" in page.read_text(encoding="utf-8")
    assert render(tmp_path, ROOT / "results", {"maps": markdown}) == []
