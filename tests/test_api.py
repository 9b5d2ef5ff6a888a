"""The Python API: own ids in and out, for known and for new users, before and after saving."""

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey.contract.fleet import Request
from covey.core.errors import CoveyError
from covey.core.messages import Download, Sent
from covey.core.ragged import Rows
from covey.core.rng import Rng
from covey.data import Dataset
from covey.inference.scorers import private_part
from covey.run.config.shipped import read, shipped

SMALL: dict[str, Any] = {"data": {"users": 40, "items": 60, "mean_items": 8}}
OWN: dict[str, dict[str, Any]] = {
    "cofedrec": {"grouping": {"categories": 4}},
    "fedcl": {"model": {"dim": 8}},
    "spectral": {"model": {"rank": 6}},
    "spectral-private": {"model": {"rank": 8}},
    "pdc-frs-titles": {"set": ["mechanism.0.similarity=words"]},  # without the extra
    "mf": {"pooled": {"epochs": 2}},
    "ncf": {"pooled": {"epochs": 2}},
}
METHODS = sorted(shipped("methods"))
PER_USER = ("mf", "ncf")  # pooled models that know only the users of their data


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def small(method: str, **more: Any) -> Any:
    rounds = None if "pooled" in read("methods", method) else 2
    return covey.fit(method, "synthetic", rounds=rounds, **SMALL, **OWN.get(method, {}), **more)


def checkerboard(n: int = 40, each: int = 10) -> Dataset:
    """Even users have even items, odd users odd ones; named a0, b1, a2, ..."""
    chance = random.Random(0)
    pairs = [(u, i) for u in range(n) for i in chance.sample(range(u % 2, n, 2), each)]
    user_E, item_E = np.array(pairs).T
    users, items = (np.array([f"{kind}{'ab'[k % 2]}{k}" for k in range(n)]) for kind in "ui")
    titles = tuple(f"title {k}" for k in range(n))
    return Dataset("checkerboard", n, n, user_E, item_E, None, users, items, titles)


def seen(dataset: Dataset, user: int) -> set[int]:
    return set(dataset.item_E[dataset.user_E == user].tolist())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_recommends_saves_and_loads(method: str, tmp_path: Path) -> None:
    fitted = small(method)
    lists = fitted.recommend(["0", 3, "39"], k=7)
    assert list(lists) == ["0", "3", "39"]  # of the type that ids have in the data
    for user, items in lists.items():
        assert len(set(items)) == 7
        assert not {int(i) for i in items} & seen(fitted.prepared.dataset, int(user))
    assert set(fitted.evaluate()) == {"valid", "test"}
    fitted.save(tmp_path / "saved")
    again = covey.Recommender.load(tmp_path / "saved")
    assert again.ranked(fitted.users, 60, filter_seen=False) == fitted.ranked(
        fitted.users, 60, filter_seen=False
    )
    assert again.evaluate() == fitted.evaluate()
    assert again.result == fitted.result
    if method in PER_USER:
        with pytest.raises(CoveyError, match="none for a new one"):
            fitted.recommend_new(["1"])
    else:
        new = fitted.recommend_new(["1", "2", 5], k=60)
        assert len(set(new)) == 57 and not {"1", "2", "5"} & set(new)
        assert again.recommend_new(["1", "2", 5], k=60) == new


@pytest.mark.parametrize("method", ["fedmf", "pfedrec", "cofedrec", "spectral", "fedcl", "ncf"])
def test_it_ranks_as_it_was_measured(method: str) -> None:
    """hit@10 of the test, counted by hand from the lists."""
    fitted = small(
        method, set=["split.kind=loo", 'evaluate.metrics=["hit@10"]', "evaluate.select=hit@10"]
    )
    split = fitted.prepared.split
    lists = fitted.ranked(fitted.users, 10, as_tested=True)
    held = [
        (str(u), str(i))
        for u, i in zip(split.test.owner.tolist(), split.test.values.tolist(), strict=True)
    ]
    hits = [any(choice.item == item for choice in lists[user]) for user, item in held]
    assert sum(hits) / len(hits) == pytest.approx(fitted.evaluate()["test"]["hit@10"])


@pytest.mark.parametrize(
    ("method", "rounds", "more"),
    [
        ("fedmf", 40, {}),
        ("fedncf", 60, {}),
        ("spectral", 4, {"model": {"rank": 4}}),
        ("ease", None, {}),
    ],
)
def test_a_new_user_gets_its_own_colour(
    method: str, rounds: int | None, more: dict[str, Any]
) -> None:
    fitted = covey.fit(method, checkerboard(), rounds=rounds, evaluate={"every": 100}, **more)
    for start, colour in enumerate("ab"):
        mine = [f"i{colour}{k}" for k in range(start, 28, 4)]
        got = fitted.recommend_new(mine, k=8)
        assert sum(item[1] == colour for item in got) >= 7, got
        assert not set(got) & set(mine)


def test_fitting_a_new_user_leaves_the_others_alone() -> None:
    for method in ("fedmf", "pfedrec", "cofedrec"):
        fitted = small(method)
        before = fitted.ranked(fitted.users, 60)
        public = {k: v.clone() for k, v in fitted.scorer.server.public.items()}
        assert fitted.recommend_new(["3", "4"], rounds=3) == fitted.recommend_new(
            ["3", "4"], rounds=3
        )
        assert fitted.ranked(fitted.users, 60) == before
        assert all(torch.equal(v, public[k]) for k, v in fitted.scorer.server.public.items())


@pytest.mark.parametrize(
    ("method", "moving"),
    [
        ("fedmf", {"user"}),
        ("fedncf", {"user"}),
        ("pfedrec", {"score", "bias", "items"}),
        ("spectral", None),
    ],
)
def test_only_what_is_the_clients_own_is_fitted(method: str, moving: set[str] | None) -> None:
    """PFedRec's items move in the tuned copy that never leaves the device."""
    fleet, server = small(method).scorer.fleet, small(method).scorer.server
    private = private_part(fleet.program)
    if moving is None:
        assert private is None
        return
    assert private is not None and private.solver is not None
    assert {name for phase in private.solver.phases for name in phase} == moving
    ids_C = torch.arange(3)
    kept, rng = fleet.store.take(ids_C), Rng.of(0, 9, ids_C)
    sent = Download(Sent({k: v for k, v in server.public.items() if k not in private.model.kept}))
    request = Request("train", 9, ids_C, sent)
    after, upload = private.answer(request, kept, fleet.data.take(ids_C), rng)
    for name, update in upload.update.items():
        moved = bool((update.values if isinstance(update, Rows) else update).any())
        assert moved == (name in moving), name
    assert all(not torch.equal(after[name], kept[name]) for name in private.model.kept)


def test_seen_items_come_back_on_demand() -> None:
    board = checkerboard()
    fitted = covey.fit("popularity", board)
    everything = fitted.recommend("ua0", k=100, filter_seen=False)["ua0"]
    assert sorted(everything) == sorted(board.items.tolist())  # type: ignore[union-attr]
    fresh = fitted.recommend("ua0", k=100)["ua0"]
    assert {int(i[2:]) for i in fresh} == set(range(40)) - seen(board, 0)


def test_a_frame_in_and_a_frame_out() -> None:
    pd = pytest.importorskip("pandas")
    rows = [
        (u * 11, i + 500, f"t{i}")
        for u, i in sorted(zip(checkerboard().user_E, checkerboard().item_E))
    ]
    frame = pd.DataFrame(rows, columns=["user", "item", "title"])
    fitted = covey.fit("ease", frame)
    table = fitted.recommend([0, 11], k=3, as_frame=True)
    assert list(table.columns) == ["user", "item", "rank", "score", "title"]
    assert table["user"].tolist() == [0] * 3 + [11] * 3
    assert table["rank"].tolist() == [1, 2, 3] * 2
    assert table["title"].tolist() == [f"t{i - 500}" for i in table["item"]]
    assert set(table["item"]) <= set(frame["item"])
    assert all(mine["score"].is_monotonic_decreasing for _, mine in table.groupby("user"))


def test_a_csv_in(tmp_path: Path) -> None:
    """Odd shape: semicolons, a quoted title with one, ids with leading zeros, no times."""
    rows = [
        f'{u:03};{i:04};"Part {i}; the end"'
        for u, i in zip(checkerboard().user_E, checkerboard().item_E)
    ]
    (tmp_path / "own.csv").write_text(
        "\n".join(["user;item;title", *rows]) + "\n", encoding="utf-8"
    )
    fitted = covey.fit("ease", tmp_path / "own.csv")
    best = fitted.ranked(["004"], k=5)["004"]
    assert fitted.prepared.dataset.name == "own"
    assert all(
        len(c.item) == 4 and c.title == f"Part {int(c.item)}; the end" and int(c.item) % 2 == 0
        for c in best
    )


def test_a_run_folder_is_kept_and_loads(tmp_path: Path) -> None:
    fitted = covey.fit(
        "fedmf", checkerboard(), rounds=2, out=tmp_path / "run", set=["data.min_user=2"]
    )
    assert {"config.toml", "dataset.npz", "result.json", "state.safetensors"} <= {
        p.name for p in (tmp_path / "run").iterdir()
    }
    (tmp_path / "run").rename(tmp_path / "moved")
    assert covey.Recommender.load(tmp_path / "moved").recommend(["ub1"]) == fitted.recommend(
        ["ub1"]
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda r: r.recommend(["nobody"]), "no user 'nobody' in synthetic; .*recommend_new"),
        (lambda r: r.recommend(["0"], k=0), "k = 0; at least 1"),
        (lambda r: r.recommend_new([]), "at least one item"),
        (lambda r: r.recommend_new("12"), "at least one item"),
        (
            lambda r: r.recommend_new(["brand new"]),
            "no item 'brand new' in synthetic; .*trained with, or add it with add_items",
        ),
        (
            lambda r: covey.fit("fedmf", "synthetic", modell={"dim": 3}),
            "no option 'modell'; did you mean 'model'",
        ),
        (
            lambda r: covey.fit("fedmf", "synthetic", model={"dims": 3}),
            "no option 'dims'; did you mean 'dim'",
        ),
        (lambda r: covey.fit("fedmf", data={"name": "ml-100k"}), "fit.*dataset"),
        (lambda r: covey.fit("fedmff"), "no method 'fedmff'; did you mean 'fedmf'"),
        (lambda r: covey.load("nofile.csv"), "^no file nofile.csv; is the path right"),
        (
            lambda r: covey.load(pytest.importorskip("pandas").DataFrame({"a": [1]})),
            "it has: a; say user='COLUMN'$",
        ),
        (lambda r: covey.Recommender.load("not-there"), "not-there is no run folder"),
    ],
)
def test_mistakes_are_one_line(wrong: Any, message: str) -> None:
    with pytest.raises(CoveyError, match=message) as output:
        wrong(small("popularity"))
    assert "\n" not in str(output.value)


def test_nothing_is_left_of_a_fit_that_fails(tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match="cuda"):
        covey.fit("fedmf", checkerboard(), out=tmp_path / "run", set=["engine.device=cuda:99"])
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    fitted = covey.fit("popularity", checkerboard(), out=tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    with pytest.raises(CoveyError, match="holds a run already"):
        fitted.save(tmp_path / "run")
    with pytest.raises(CoveyError, match="holds a run already"):
        covey.fit("fedmf", checkerboard(), out=tmp_path / "run")
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before


def test_a_save_can_take_the_place_of_a_run(tmp_path: Path) -> None:
    """Nothing of the old run is left, and other files stay, also if it was loaded from there."""
    place = tmp_path / "place"
    covey.fit("fedmf", checkerboard(), rounds=1, out=place, model={"dim": 4})
    (place / "mine.txt").write_text("kept")
    other = covey.fit("popularity", checkerboard())
    other.save(place, overwrite=True)
    other.save(tmp_path / "new", overwrite=True)
    there, fresh = ({p.name for p in folder.iterdir()} for folder in (place, tmp_path / "new"))
    assert there == fresh | {"mine.txt"}
    again = covey.Recommender.load(place)
    again.save(place, overwrite=True)
    lists = covey.Recommender.load(place).recommend(["ua0"])
    assert lists == again.recommend(["ua0"]) == other.recommend(["ua0"])


def test_a_changed_dataset_is_noticed(tmp_path: Path) -> None:
    covey.fit("fedmf", checkerboard(), rounds=1, out=tmp_path / "run")
    checkerboard(30).save(tmp_path / "run" / "dataset.npz")
    with pytest.raises(CoveyError, match="has changed since"):
        covey.Recommender.load(tmp_path / "run")


def test_the_quick_start_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("pandas")
    page = (Path(__file__).parents[1] / "docs" / "quick-start.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in [*blocks, blocks[0]]:  # a second time too, beside what the first has left
        exec(compile(block, "quick-start.md", "exec"), names)
    assert (tmp_path / "first" / "config.toml").exists()
    figure, floor = capsys.readouterr().out.splitlines()[0].split(" floor: ")
    assert float(figure) > 2 * float(floor)


def test_import_stays_light() -> None:
    code = "import sys, covey; assert 'torch' not in sys.modules"
    code += "; covey.fit; assert 'torch' in sys.modules"
    source = str(Path(covey.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": source},
    )
    assert done.returncode == 0, done.stderr
    assert {"fit", "load", "Recommender"} <= set(dir(covey))
    with pytest.raises(AttributeError, match="no attribute 'train'"):
        _ = covey.train


def test_every_shipped_method_is_covered() -> None:
    assert {m for m in METHODS if "pooled" in read("methods", m)} >= set(PER_USER)
