"""The formats of the public datasets, each as a small file made by hand."""

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from covey.core.errors import CoveyError
from covey.data.dataset import Dataset
from covey.data.public.formats import parse
from covey.data.public.registry import find


def tabs(*lines: str) -> bytes:
    return "".join(line.replace(" ", "\t") + "\r\n" for line in lines).encode()


MOVIES = "1::Toy Story (1995)::Animation\n2::Mis\xe9rables, Les (1995)::Drama\n"
FILES: dict[str, dict[str, bytes]] = {
    "ml-100k": {
        "u.data": b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n196\t302\t1\t878887116\n",
        "u.item": b"242|Kolya (1996)|24-Jan-1997||url|0|1\n"
        b"302|Mis\xe9rables (1995)|01-Jan-1997||url|0|1\n",
    },
    "ml-1m": {
        "ratings.dat": b"1::1::5::978300760\n1::2::3::978302109\n2::1::4::978301968\n",
        "movies.dat": MOVIES.encode("latin-1"),
    },
    "filmtrust": {"ratings.txt": b"1 1 2.0\r\n1 2 4.0\r\n2 1 3.5\r\n"},
    "lastfm-2k": {
        "user_taggedartists.dat": tabs(
            "userID artistID tagID day month year",
            "2 52 13 1 4 2009",
            "3 52 15 2 4 2009",
            "3 63 15 1 5 2009",
        ),
        "user_taggedartists-timestamps.dat": tabs(
            "userID artistID tagID timestamp",
            "2 52 13 1238536800000",
            "3 52 15 1238536800000",
            "3 63 15 1238536800000",
        ),
        "artists.dat": "id\tname\turl\tpictureURL\n52\tMorcheeba\thttp://x\ty\n63\tSigur R\xf3s\thttp://x\t\n".encode(),
    },
    "amazon-office": {
        "reviews_Office_Products_5.json": b'{"reviewerID": "A1", "asin": "0001",'
        b' "overall": 5.0, "unixReviewTime": 9}\n'
        b'{"reviewerID": "A2", "asin": "0001", "unixReviewTime": 970185601}\n'
        b'{"reviewerID": "A2", "asin": "B2", "unixReviewTime": 3}\n',
        "meta_Office_Products.json": b"{'asin': '0001', 'title': \"Bob's \\u0026 pens\"}\n"
        b"{'asin': 'B2', 'price': 3}\n",
    },
    "yelp-s3rec": {
        "yelp_academic_dataset_review.json": "".join(
            json.dumps(
                {
                    "review_id": "r",
                    "user_id": f"u{u}",
                    "business_id": f"b{b}",
                    "stars": 5.0,
                    "date": f"{y}-03-04 05:06:07",
                }
            )
            + "\n"
            for y in (2018, 2019)
            for u in range(5)
            for b in range(5)
        ).encode(),
        "yelp_academic_dataset_business.json": b'{"business_id": "b1", "name": "Joe\'s"}\n',
    },
    "qb-article": {"QB-article.csv": b"user_id,item_id,click,read\n1,10,1,0\n2,10,0,0\n2,11,1,1\n"},
}
for name in ("gowalla", "yelp2018"):
    FILES[f"{name}-lightgcn"] = {"train.txt": b"0 10 11\n1 12\n", "test.txt": b"0 12\n1\n"}
for category, name in (
    ("Sports_and_Outdoors", "amazon-sports-s3rec"),
    ("Beauty", "amazon-beauty-s3rec"),
    ("Toys_and_Games", "amazon-toys-s3rec"),
    ("Cell_Phones_and_Accessories", "amazon-cellphones-5core"),
):
    FILES[name] = {
        f"reviews_{category}_5.json.gz": gzip.compress(
            FILES["amazon-office"]["reviews_Office_Products_5.json"]
        )
    }
RATINGS = "".join(f"A{u},B{i},5.0,{u + i}\n" for u in range(6) for i in range(5)) + "A9,B9,1.0,7\n"
FILES["amazon-beauty-bert4rec"] = {"ratings_Beauty.csv": RATINGS.encode()}
FILES["amazon-video-pfedrec"] = {"ratings_Amazon_Instant_Video.csv": RATINGS.encode()}

EXPECTED = {  # users, items, rows, first time
    "ml-100k": (2, 2, 3, 881250949),
    "ml-1m": (2, 2, 3, 978300760),
    "filmtrust": (2, 2, 3, None),
    "lastfm-2k": (2, 2, 3, 1238536800),
    "amazon-office": (2, 2, 3, 9),
    "amazon-sports-s3rec": (2, 2, 3, 9),
    "amazon-beauty-s3rec": (2, 2, 3, 9),
    "amazon-toys-s3rec": (2, 2, 3, 9),
    "gowalla-lightgcn": (2, 3, 4, None),
    "yelp2018-lightgcn": (2, 3, 4, None),
    "amazon-cellphones-5core": (2, 2, 3, 9),
    "amazon-beauty-bert4rec": (6, 5, 30, 0),
    "amazon-video-pfedrec": (6, 5, 30, 0),
    "yelp-s3rec": (5, 5, 25, 1551675967),
    "qb-article": (2, 2, 2, None),
}


def folder(root: Path, name: str) -> Path:
    inside = root / name / "inside"
    inside.mkdir(parents=True)
    for file, content in FILES[name].items():
        (inside / file).write_bytes(content)
    return root / name


def zipped(root: Path, name: str) -> Path:
    with zipfile.ZipFile(root / "copy.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in FILES[name].items():
            archive.writestr(f"inside/{file}", content)
    return root / "copy.zip"


def tarred(root: Path, name: str) -> Path:
    with tarfile.open(root / "copy.tar.gz", "w:gz") as archive:
        for file, content in FILES[name].items():
            info = tarfile.TarInfo(f"inside/{file}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return root / "copy.tar.gz"


def single(root: Path, name: str) -> Path:
    file = next(iter(FILES[name]))
    (root / file).write_bytes(FILES[name][file])
    return root / file


def counts(d: Dataset) -> tuple[int, int, int]:
    return d.n_users, d.n_items, len(d)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("copy", [folder, zipped, tarred])
def test_the_original_is_read(name: str, copy: object, tmp_path: Path) -> None:
    assert callable(copy)
    d = parse(find(name), copy(tmp_path, name))
    *expected, first = EXPECTED[name]
    assert counts(d) == tuple(expected) and d.name == name
    assert (d.time_E is None) == (first is None) and d.clock == (first is not None)
    assert d.time_E is None or d.time_E[0] == first


@pytest.mark.parametrize("name", [name for name in EXPECTED if not find(name).test])
def test_one_file_is_enough(name: str, tmp_path: Path) -> None:
    d = parse(find(name), single(tmp_path, name))
    assert counts(d) == EXPECTED[name][:3] and d.titles == ()


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("ml-100k", ("Kolya (1996)", "Mis\xe9rables (1995)")),
        ("ml-1m", ("Toy Story (1995)", "Mis\xe9rables, Les (1995)")),
        ("lastfm-2k", ("Morcheeba", "Sigur R\xf3s")),
        ("amazon-office", ("Bob's & pens", "B2")),  # without a title, its id
        ("yelp-s3rec", ("b0", "Joe's", "b2", "b3", "b4")),
    ],
)
def test_titles_are_read_in_their_encoding(
    name: str, titles: tuple[str, ...], tmp_path: Path
) -> None:
    assert parse(find(name), folder(tmp_path, name)).titles == titles


def test_a_test_part_of_its_own_is_kept(tmp_path: Path) -> None:
    d = parse(find("gowalla-lightgcn"), folder(tmp_path, "gowalla-lightgcn"))
    assert d.users is not None and d.items is not None and d.part_E is not None
    assert list(zip(d.users[d.user_E], d.items[d.item_E], d.part_E)) == [
        ("0", "10", 0),
        ("0", "11", 0),
        ("1", "12", 0),
        ("0", "12", 2),
    ]
    (tmp_path / "both/gowalla").mkdir(parents=True)
    (tmp_path / "both/train.txt").write_text("7 7\n")  # of another dataset
    (tmp_path / "both/gowalla/train.txt").write_bytes(b"0 10 11\n1 12\n")
    with pytest.raises(
        CoveyError, match=r"has no file gowalla/test\.txt or test\.txt; get it from"
    ):
        parse(find("gowalla-lightgcn"), tmp_path / "both")
    (tmp_path / "both/gowalla/test.txt").write_bytes(b"0 12\n1\n")
    assert len(parse(find("gowalla-lightgcn"), tmp_path / "both")) == 4


def test_the_older_table_of_lastfm_has_days(tmp_path: Path) -> None:
    d = parse(find("lastfm-2k"), single(tmp_path, "lastfm-2k"))
    assert d.time_E is not None and d.time_E.tolist() == [1238544000, 1238630400, 1241136000]


def test_ids_stay_as_they_are(tmp_path: Path) -> None:
    d = parse(find("amazon-office"), folder(tmp_path, "amazon-office"))
    assert d.items is not None and d.items.tolist() == ["0001", "B2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ml-1m", b"1::2::3::4\n1::2\n", r"ratings\.dat line 2: expected 4 columns, found 2"),
        ("ml-1m", b"1,2,3,4\n", "line 1: expected 4 columns"),
        ("ml-1m", b"1::2::3::soon\n", "line 1: could not convert"),
        ("ml-1m", b"", "no interactions"),
        ("ml-1m", b"1::2::3::4\n", "1 user"),
        (
            "amazon-office",
            b'{"reviewerID": "A", "asin": "B"}\n{"reviewerID": "A"}\n',
            r"line 2: no field 'asin'",
        ),
        ("amazon-office", b'{"reviewerID": \n', "line 1: "),
        (
            "yelp-s3rec",
            b'{"user_id": "a", "business_id": "b", "date": "2001-01-01 00:00:00"}\n',
            "no row of the years",
        ),
        ("qb-article", b"a,b\n1,2\n", "no field 'user_id'"),
        ("lastfm-2k", b"", "no interactions"),
    ],
)
def test_a_bad_file_is_told_with_its_line(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / find(name).rows[0].removesuffix(".gz")
    path.write_bytes(content)
    with pytest.raises(CoveyError, match=message) as caught:
        parse(find(name), path)
    assert "\n" not in str(caught.value)


def test_a_copy_that_is_not_there_or_damaged(tmp_path: Path) -> None:
    source = find("ml-1m")
    with pytest.raises(CoveyError, match="no file or folder"):
        parse(source, tmp_path / "nothing.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CoveyError, match=r"has no file ratings\.dat; get it from https"):
        parse(source, tmp_path / "empty")
    whole = zipped(tmp_path, "ml-1m").read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:50] + b"xxxx" + whole[54:], b""):
        (tmp_path / "copy.zip").write_bytes(damaged)
        with pytest.raises(CoveyError, match=r"cannot read .*get it again"):
            parse(source, tmp_path / "copy.zip")
