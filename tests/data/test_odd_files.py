"""Files as odd as those that people have: each becomes a dataset by one command."""

import gzip
import io
import json
import shlex
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from command import Covey, Output, sets
from covey.cli.main import main
from covey.core.errors import CoveyError
from covey.data import Dataset, load
from covey.data.tables.importing import Columns, from_file

Say = Callable[[str], Output]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command in an empty folder with an empty cache."""
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COVEY_DATA", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(words: str) -> Output:
        code = main(shlex.split(words))
        output = capsys.readouterr()
        return Output(code, " ".join(output.out.split()), output.err)

    return call


def zipped(**files: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml/", "")
        for name, text in files.items():
            archive.writestr(f"ml/{name}.csv", text)
    return stream.getvalue()


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


RETAIL = (
    "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,CustomerID\n"
    "536365,85123A,HEART T-LIGHT,6,12/1/2010 8:26,17850\n"
    "536366,22633,HAND WARMER,6,12/13/2010 8:28,\n"
    "536367,84879, BIRD ORNAMENT ,32,12/13/2010 18:34, 13047 \n"
)
EVENTS = "visitorid,itemid,event,ts\n1,a,view,5\n1,b,buy,6\n2,a,cart,7\n2,c,buy,8\n3,c,view,9\n"
STARS = "user,item,stars\na,x,5\na,y,1\nb,z,4.0\nb,y,\nb,x,3\n"
LINES = [
    {"user_id": 1, "business_id": "x", "date": "2019-03-04 05:06:07", "tags": {"deep": [1]}},
    {"user_id": 2, "business_id": "y", "date": "2019-03-05 05:06:07", "stars": 3},
    {"user_id": 1, "business_id": "y", "date": None},
]
CORE = "user,item\n" + "a,x\nb,x\na,y\nb,y\n" + "c,x\nc,z\nd,z\n"

ODD: dict[str, tuple[str | bytes, str, str, list[float] | None, str]] = {
    # the file; options; "user item" of each row; times; a part of the notes
    "separator of two characters": (
        "1::1193::5::978300760\n2::661::3::978302109\n",
        "--columns user,item,rating,timestamp",
        "1 1193, 2 661",
        [978300760, 978302109],
        "every row counts, whatever its rating (3 to 5)",
    ),
    "its header too": ("user_id::movie_id\n7::1,5\n8::2\n", "", "7 1,5, 8 2", None, ""),
    "any spaces": ("  user   item  rating\n a  x    2\n\tb\ty 3\n", "", "a x, b y", None, "2 to 3"),
    "spaces around cells": (
        "user ; item\n a ; x y \nb; x y\nb;z\n",
        "",
        "a x y, b x y, b z",
        None,
        "",
    ),
    "a shop": (
        RETAIL,
        "--time InvoiceDate --drop-incomplete",
        "17850 85123A, 13047 84879",
        [at("2010-12-01 08:26"), at("2010-12-13 18:34")],
        "dates have the month first, as '12/13/2010 8:28' shows",
    ),
    "a shop without users": (
        RETAIL,
        "--user Description --item StockCode --time ''",
        "HEART T-LIGHT 85123A, HAND WARMER 22633, BIRD ORNAMENT 84879",
        None,
        "ignored: InvoiceNo, Quantity, InvoiceDate, CustomerID",
    ),
    "the day first": (
        "user,item,date\na,x,1/2/2024 9:05 PM\nb,y,13/2/2024\n",
        "",
        "a x, b y",
        [at("2024-02-01 21:05"), at("2024-02-13")],
        "dates have the day first, as '13/2/2024' shows",
    ),
    "a format": (
        "user,item,date\na,x,1/2/24\nb,y,3/2/24\n",
        "--time-format %d/%m/%y",
        "a x, b y",
        [at("2024-02-01"), at("2024-02-03")],
        "",
    ),
    "months by name": (
        'user,item,date\na,x,"Feb 1, 2024"\nb,x,"Mar 3, 2024"\nb,y,\nc,x,\nc,y,"Mar 3, 2024"\n',
        "--time-format '%b %d, %Y' --drop-incomplete",
        "a x, b x, c y",
        [at("2024-02-01"), at("2024-03-03"), at("2024-03-03")],
        "",
    ),
    "zones and fractions": (
        "user,item,date\na,x,2024-02-01T10:00:00.5Z\nb,x,2024-02-01 10:00:00+02:00\n"
        "b,y,2024/2/1 7:00 UTC\n",
        "",
        "a x, b x, b y",
        [at("2024-02-01 10:00") + 0.5, at("2024-02-01 08:00"), at("2024-02-01 07:00")],
        "",
    ),
    "events": (
        EVENTS,
        "--where event=buy",
        "1 b, 2 c",
        [6, 8],
        "2 of 5 rows are kept: event is buy",
    ),
    "several events": (
        EVENTS,
        "--where event=buy --where event=cart --where visitorid=2 --where visitorid=1",
        "1 b, 2 a, 2 c",
        [6, 7, 8],
        "3 of 5 rows are kept: event is buy or cart and visitorid is 1 or 2",
    ),
    "ratings": (
        STARS,
        "--min-rating 3.5 --drop-incomplete",
        "a x, b z",
        None,
        "2 of 5 rows are kept: their rating is 3.5 or more",
    ),
    "ratings as they are": (STARS, "", "a x, a y, b z, b y, b x", None, "its stars (1 to 5)"),
    "a core": (CORE, "--core 2", "a x, b x, a y, b y", None, ""),
    "lines.jsonl": (
        "\n".join(map(json.dumps, LINES)) + "\n\n",
        "--drop-incomplete",
        "1 x, 2 y",
        [at("2019-03-04 05:06:07"), at("2019-03-05 05:06:07")],
        "of 3 rows there are 1 without time: they are left out",
    ),
    "lines.json.gz": (
        gzip.compress("\n".join(map(json.dumps, LINES)).encode()),
        "--time '' --where user_id=1 --where user_id=2",
        "1 x, 2 y, 1 y",
        None,
        "3 of 3 rows are kept: user_id is 1 or 2",
    ),
    "one.zip": (zipped(ratings="user,item\na,x\nb,y\n"), "", "a x, b y", None, ""),
    "blank rows": ("user,item,\n,,\na,x,\n\nb,y,,,\n,,\n", "", "a x, b y", None, ""),
}


def own(d: Dataset) -> str:
    assert d.users is not None and d.items is not None
    return ", ".join(f"{d.users[u]} {d.items[i]}" for u, i in zip(d.user_E, d.item_E))


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_imported_by_one_command(name: str, say: Say) -> None:
    content, options, rows, times, note = ODD[name]
    file = Path(name if "." in name else f"{name}.csv")
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    output = say(f"data import '{file}' --name odd {options}")
    assert output.code == 0, output.err
    dataset = load("odd")
    assert own(dataset) == rows and note in output.out
    assert (None if dataset.time_E is None else dataset.time_E.tolist()) == times


def test_a_file_in_an_archive_can_be_named_and_a_method_learns_from_it(
    say: Say, covey: Covey, tmp_path: Path
) -> None:
    ratings = "userId,movieId,rating,timestamp\n"
    ratings += "".join(f"{u},{i},{i % 5},{u * i}\n" for u in range(9) for i in range(u % 3, 8))
    titles = "movieId,title,genres\n1,Tea (1999),x\n2,Two,y\n"
    Path("ml.zip").write_bytes(zipped(ratings=ratings, movies=titles))
    told = say("data import ml.zip").err
    assert (
        "ml.zip has several files: ml/ratings.csv, ml/movies.csv; name one, such as ml.zip/" in told
    )
    done = say("data import ml.zip/ratings.csv --items ml.zip/ml/movies.csv --min-rating 1")
    assert done.code == 0 and "Tea (1999)" in load("ratings").titles
    small = sets("model.dim=4", "run.rounds=2")
    words = ("run", "--method", "fedmf", "--dataset", "ratings", *small)
    assert covey(*words, "--out", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        (
            ("1/2/2024", "3/2/2024 8:00"),
            "'1/2/2024' may have the day or the month first; say which",
        ),
        (("13/2/2024", "2/13/2024"), "'2/13/2024' has the month first and '13/2/2024' the day"),
        (("13/13/2024", "1/2/2024"), "line 2: '13/13/2024' is no time"),
        (("2024-02-30", "2024-02-01"), "line 2: '2024-02-30' is no time"),
        (("1/2/24", "1/3/24"), "line 2: '1/2/24' is no time; .*--time-format FORMAT"),
        (("2024-01-01 25:00", "5"), "line 2: '2024-01-01 25:00' is no time"),
    ],
)
def test_dates_that_are_not_certain_are_refused(
    dates: tuple[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "d.csv").write_text("user,item,date\na,x,{}\nb,y,{}\n".format(*dates))
    with pytest.raises(CoveyError, match=message):
        from_file(tmp_path / "d.csv", "d")


HOSTILE = {
    "array.json": (b'[{"user": 1}]', "line 1: no JSON object; write one object in each line"),
    "deep.jsonl": (b'{"user": 1, "item": 2}\n' + b"[" * 100_000, "line 2: no JSON"),
    "half.jsonl": (b'{"user": 1, "item": 2}\n{"user"', "line 2: no JSON"),
    "mixed.jsonl": (
        b'{"user": 1, "item": 2}\n{"user": "b", "item": 3}\n',
        "the user column mixes numbers and text",
    ),
    "bad.zip": (b"PK\x03\x04 no archive", "cannot read .*is it whole"),
    "bomb.csv.gz": (gzip.compress(b"user,item\n" + b"x" * 20_000_000), "line 2"),
    "long.csv": (b"user,item\n" + b"u" * 5000 + b",x\nb,y\n", "an id of the user has 5,000"),
    "quote.csv": (b'user,item\n"a,x\n' + b"b,y\n" * 50_000, "line .*field larger than"),
    "nul.csv": (b"user,item\n\0,x\n1,\0\n", ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_an_error_of_one_line(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CoveyError, match=message) if message else pytest.MonkeyPatch.context():
        from_file(tmp_path / name, "h", Columns())


def test_the_line_of_an_error_counts_all_lines(tmp_path: Path) -> None:
    """Blank lines and lines within quotes count; the error is far behind the first rows."""
    rows = "".join(f'{k},"x\n{k}",{k}\n\n' for k in range(1000))
    (tmp_path / "l.csv").write_text(f"user,item,time\n{rows}7,y,soon\n")
    with pytest.raises(CoveyError, match="line 3002: 'soon' is no time"):
        from_file(tmp_path / "l.csv", "l")
