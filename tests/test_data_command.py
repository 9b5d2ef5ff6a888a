"""`covey data` from the outside: what it prints, writes and refuses."""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import Covey, Output, expect_line, leftovers, sets
from covey.cli import data as command
from covey.core.errors import CoveyError
from covey.data import cache, load
from covey.data.public.registry import SOURCES
from covey.run import checkpoint
from covey.run.assemble import prepare
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign

ROWS = "user,item,timestamp,title\n" + "".join(
    f"{u:03},{i},{u * i},Item {i}\n" for u in range(6) for i in range(5)
)
REAL = {  # users, items, rows of each copy; and as the papers filter it
    "ml-100k": ((943, 1682, 100_000), None),
    "ml-1m": ((6040, 3706, 1_000_209), None),
    "filmtrust": ((1508, 2071, 35_497), (1227, 2059, 34_888)),
    "lastfm-2k": ((1892, 12_523, 186_479), (1600, 12_454, 185_650)),
    "amazon-beauty-bert4rec": ((40_226, 54_542, 353_962), None),
    "amazon-sports-s3rec": ((35_598, 18_357, 296_337), None),
    "yelp-s3rec": ((30_431, 20_033, 316_354), None),
    "amazon-video-pfedrec": ((8072, 11_830, 63_836), None),
    "amazon-office": ((4905, 2420, 53_258), None),
    "amazon-cellphones-5core": ((27_879, 10_429, 194_439), None),
    "amazon-beauty-s3rec": ((22_363, 12_101, 198_502), None),
    "amazon-toys-s3rec": ((19_412, 11_924, 167_597), None),
    "gowalla-lightgcn": ((29_858, 40_981, 1_027_370), None),
    "yelp2018-lightgcn": ((31_668, 38_048, 1_561_406), None),
}
DATA = os.environ.get("COVEY_DATA", "")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="covey")
    command.add(made.add_subparsers(required=True))
    return made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with some files, an empty cache and no local copies."""
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COVEY_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("ratings.csv").write_text(ROWS)
    with zipfile.ZipFile("ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t2\t5\t9\n3\t2\t5\t9\n3\t4\t5\t9\n")
        archive.writestr("ml-100k/u.item", "2|Two (1995)|\n4|Four (1995)|\n")
    yield tmp_path
    assert not leftovers(tmp_path)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Covey:
    def call(*words: object) -> Output:
        options = parser().parse_args([str(w) for w in words])
        try:
            code = options.act(options)
        except CoveyError as error:
            print(f"covey: {error}", file=sys.stderr)
            code = 2
        return Output(code, *capsys.readouterr())

    return call


def helps() -> list[str]:
    texts = []
    for words in ([], ["list"], ["get"], ["import"], ["show"]):
        with contextlib.redirect_stdout(None) as _, pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                argparse.ArgumentParser,
                "print_help",
                lambda self, *_: texts.append(self.format_help()),
            )
            with pytest.raises(SystemExit):
                parser().parse_args(["data", *words, "--help"])
    return texts


def test_the_example_of_every_help_runs(say: Covey) -> None:
    texts = helps()
    assert len(texts) == 5
    for text in texts:
        found = re.search(r"example: covey (.*)", text)
        assert found, text
        assert say(*shlex.split(found[1])).code == 0


def test_list_names_what_is_known_and_what_is_here(say: Covey) -> None:
    say("data", "import", "ratings.csv", "--name", "mine")
    output = say("data", "list")
    assert all(len(line) <= 80 for line in output.out.splitlines())
    assert re.search(r"^mine +cache$", output.out, re.M) and re.search(
        r"^ml-1m +no +MovieLens 1M$", output.out, re.M
    )
    rows = {row["name"]: row["here"] for row in json.loads(say("data", "list", "--json").out)}
    assert (
        rows["synthetic"] == "built in" and rows["mine"] == "cache" and rows["qb-article"] == "no"
    )


def test_get_shows_the_licence_first_and_once(say: Covey) -> None:
    output = say("data", "get", "ml-100k", "--from", "ml-100k.zip")
    assert output.code == 0 and "licence GroupLens" in output.err
    assert "another version" in " ".join(
        output.out.split()
    )  # three rows are not a hundred thousand
    assert load("ml-100k").titles == ("Two (1995)", "Four (1995)")
    again = say("data", "get", "ml-100k")
    assert "already in" in again.out and not again.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("get ml-100", r"did you mean 'ml-100k'\?"),
        ("get qb-article", "by hand only"),
        ("get ml-1m --recbole", "has ml-100k only"),
        ("get ml-1m --from nothing", "no file or folder nothing"),
        ("get ml-1m --from ml-100k.zip", r"has no file ratings\.dat"),
        ("import nothing.csv", r"no file nothing\.csv"),
        ("import .. --name up", r"\.\. is a folder; name the file in it"),
        ("import ratings.csv --name ml-1m", "is a known dataset"),
        ("import ratings.csv --name synthetic", "used first"),
        ("import ratings.csv --name ../up", "cannot name a dataset"),
        ("import ratings.csv --delimiter ::", "no column for the user"),
        ("import ratings.csv --where item", "write COLUMN=VALUE"),
        ("import ratings.csv --where item=9", "no row has what was asked for; there is item=0, "),
        ("import ratings.csv --min-rating 4", "no column for the rating; .* say --rating COLUMN"),
        ("import ratings.csv --core 7", "no interactions.*filter too strict"),
        ("import ratings.csv --time-format %d", "time-format FORMAT: time data '0' does not match"),
        (
            "import ml-100k.zip --name my",
            r"several files: ml-100k/u\.data, ml-100k/u\.item; name one, such",
        ),
        ("import ml-100k.zip/u.base", "no such file: ml-100k/u.data"),
        ("import ratings.csv --delimiter ;", "no column for the user"),
        ("import ratings.csv --user who", "no column 'who'"),
        ("import ratings.csv --columns user,item,time,item", "two columns are called 'item'"),
        ("import ratings.csv --split who", "no column 'who'"),
        ("import ratings.csv --split user", "line 2: '000' is no part of a split"),
        ("import ratings.csv --test nothing.csv", r"no file nothing\.csv"),
        ("import ratings.csv --min-user 6", "no interactions.*filter too strict"),
        ("show nothing", "no dataset 'nothing'.*covey data list"),
        ("show ml-1m", "covey data get ml-1m"),
        ("show ratings.npz", "no file"),
    ],
)
def test_what_is_wrong_is_one_line_and_writes_nothing(
    say: Covey, words: str, message: str, home: Path
) -> None:
    output = say("data", *words.split())
    expect_line(Output(output.code, output.out, output.err.splitlines(True)[-1]), message)
    assert not cache.names() and not (home / "cache").exists()


def test_no_write_permission_is_one_line(
    say: Covey, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "COVEY_CACHE", str(home / "ratings.csv")
    )  # a file stands where the folder should be
    expect_line(say("data", "import", "ratings.csv"), "cannot write .*set COVEY_CACHE")


def test_an_import_is_not_replaced_by_accident(say: Covey) -> None:
    assert say("data", "import", "ratings.csv").code == 0
    expect_line(say("data", "import", "ratings.csv"), "imported already.*--replace")
    assert say("data", "import", "ratings.csv", "--replace", "--min-item", 2).code == 0


def test_a_replaced_import_is_read_again(say: Covey) -> None:
    config = Config.of(assign(read("methods", "fedmf"), ['data.name="ratings"']))
    for extra, users in (("", 6), ("new,1,1,x\nnew,2,2,x\nnew,3,3,x\n", 7)):
        Path("ratings.csv").write_text(ROWS + extra)
        assert say("data", "import", "ratings.csv", "--replace").code == 0
        assert prepare(config).dataset.n_users == users


def test_a_split_of_ones_own_is_checked_and_trained_on(
    say: Covey, covey: Covey, home: Path
) -> None:
    Path("test.csv").write_text("user,item\n001,4\n001,9\n002,4\n")
    output = say("data", "import", "ratings.csv", "--test", "test.csv", "--json")
    told = json.loads(output.out)
    assert told["what"].endswith("use it with --dataset ratings --set split.kind=given")
    assert any(note.startswith("2 (user, item) pairs are in two parts") for note in told["notes"])
    assert told["facts"]["parts"] == [30, 0, 3] and told["facts"]["leaks"] == 2
    assert "split     30 rows train, 0 valid, 3 test" in say("data", "show", "ratings").out
    options = [
        "--method",
        "fedmf",
        "--dataset",
        "ratings",
        "--rounds",
        2,
        *sets("model.dim=4", "split.kind=given"),
    ]
    assert covey("run", *options, "--out", home / "run").code == 0
    expect_line(
        covey("run", *options, *sets("evaluate.candidates=sampled"), "--out", home / "x"),
        "evaluate.candidates = 'full'",
    )
    users = checkpoint.load_model(home / "run" / "users.safetensors")
    assert (~users["test/ndcg@20"].isnan()).sum() == 1  # item 9 of user 001 is all that is no leak
    expect_line(
        covey("run", "--method", "fedmf", *sets("split.kind=given"), "--out", home / "y"),
        "has no split",
    )


def test_show_prints_counts_that_fit(say: Covey) -> None:
    output = say("data", "show", "synthetic")
    assert re.search(r"^all rows +1,000 +500 +[\d,]+", output.out, re.M)
    assert all(len(line) <= 80 for line in output.out.splitlines())


def test_an_import_says_which_columns_it_read(say: Covey) -> None:
    rows = "".join(f"{u},{i},2024-01-0{n}\n" for u in "abc" for n, i in enumerate("xyz", 1))
    Path("shop.csv").write_text("customer,sku,when\n" + rows)
    output = " ".join(say("data", "import", "shop.csv").out.split())
    assert (
        "note: columns read: customer (user), sku (item); ignored: when" in output
        and "say --time when" in output
    )
    output = say("data", "import", "shop.csv", "--time", "when", "--replace").out
    assert (
        "note: columns read: customer (user), sku (item), when (time)\n" in output
        and "looks like" not in output
    )


def test_show_finds_rows_of_items(say: Covey) -> None:
    rows = "".join(
        f"{u},{i},{i},{t}\n"
        for u in "abc"
        for i, t in (("12", "Tea"), ("7", "Green tea"), ("5", "No. 12"))
    )
    Path("shop.csv").write_text("user,item,time,title\n" + rows)
    assert say("data", "import", "shop.csv").code == 0
    assert (
        say("data", "show", "shop", "--find", "TEA").out
        == "row 0, id 12 (Tea)\nrow 1, id 7 (Green tea)\n"
    )
    found = json.loads(say("data", "show", "shop", "--find", "12", "--json").out)
    assert found == [
        {"row": 0, "id": "12", "title": "Tea"},
        {"row": 2, "id": "5", "title": "No. 12"},
    ]
    expect_line(
        say("data", "show", "shop", "--find", "coffee"), "no item of shop has the id 'coffee'"
    )


def test_found_rows_are_those_of_runs(
    say: Covey, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FilmTrust is cut as the papers cut it, which renumbers its items."""
    (home / "data/filmtrust").mkdir(parents=True)
    few, many = "u,rare,1\n", "".join(f"{u},i{i},{i}\n" for u in "abc" for i in range(6))
    (home / "data/filmtrust/interactions.csv").write_text(
        "user,item,timestamp\n" + few + few + many
    )
    monkeypatch.setenv("COVEY_DATA", str(home / "data"))
    (found,) = json.loads(say("data", "show", "filmtrust", "--find", "i3", "--json").out)
    assert found["row"] == list(load("filmtrust").items).index("i3")


@pytest.mark.skipif(
    not DATA, reason="COVEY_DATA is unset: the real datasets are not part of the project"
)
@pytest.mark.parametrize("name", REAL)
def test_real_counts(say: Covey, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", DATA)
    told = json.loads(say("data", "show", name, "--json").out)
    shown = [
        tuple(told[k][c] for c in ("users", "items", "rows")) if k in told else None
        for k in ("facts", "papers")
    ]
    assert tuple(shown) == REAL[name]
    assert "nothing to get" in say("data", "get", name).out


def test_the_command_is_declared_without_heavy_imports() -> None:
    code = (
        "import argparse, sys; import covey.cli.data as d;"
        "d.add(argparse.ArgumentParser().add_subparsers()); "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    words = [sys.executable, "-c", code]
    path = str(Path(command.__file__).parents[2])
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout.split() == ["False", "False"]


def test_the_python_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pandas")
    page = (Path(__file__).parents[1] / "docs/data.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    exec(compile(code, "docs/data.md", "exec"), {})
    assert capsys.readouterr().out == "['ann' 'bo']\n"


def test_the_table_of_the_page_has_every_dataset() -> None:
    page = (Path(__file__).parents[1] / "docs/data.md").read_text(encoding="utf-8")
    for source in SOURCES:
        counts = " / ".join(f"{n:,}" for n in source.counts) if source.counts else "by request"
        assert f"| `{source.name}` | {counts} |" in page
