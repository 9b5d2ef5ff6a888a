"""The registry of public datasets: one record each, with origin, terms and files."""

import difflib
from dataclasses import dataclass, replace
from typing import Literal

from covey.core.errors import CoveyError
from covey.data.settings import Filter

Form = Literal[
    "movielens-100k", "movielens-1m", "filmtrust", "lastfm", "amazon", "yelp", "tenrec", "lists"
]

TERMS = {
    "grouplens": "GroupLens, University of Minnesota: for research; no redistribution and no"
    " commercial use without permission; acknowledge the source in publications",
    "amazon": "no licence is stated; the authors ask to cite McAuley et al. (SIGIR 2015) and He and"
    " McAuley (WWW 2016)",
    "filmtrust": "unclear: no licence is stated; cite Guo, Zhang and Yorke-Smith (IJCAI 2013)",
    "lastfm": "non-commercial use; cite Cantador, Brusilovsky and Kuflik (RecSys 2011) and Last.fm",
    "yelp": "Yelp dataset terms: academic use, no redistribution; accept them on the page",
    "gowalla": "no licence is stated; cite Cho, Myers and Leskovec (KDD 2011) for the check-ins and"
    " He et al. (SIGIR 2020) for the split",
    "yelp2018": "no licence is stated for the split, cite He et al. (SIGIR 2020); Yelp's terms for"
    " the data: academic use, no redistribution",
    "tenrec": "Tenrec licence: on request, research only, no redistribution",
}
GROUPLENS = "https://grouplens.org/datasets"
FILES = "https://files.grouplens.org/datasets"
LIBREC = "https://guoguibing.github.io/librec/datasets"
SNAP = "https://snap.stanford.edu/data/amazon/productGraph/categoryFiles"
TENREC = "https://tenrec0.github.io/"
UCSD = "https://jmcauley.ucsd.edu/data/amazon/"
# LightGCN's code with its data, at one commit
LIGHTGCN = "gusye1234/LightGCN-PyTorch", "947ca2b3b1d2d3545b114145710cb06c4e57b3d2"
ALL = Filter()
Counts = tuple[int, int, int]  # expected users, items and rows


@dataclass(frozen=True)
class Source:
    """One public dataset: where it comes from, and which part of it the papers use."""

    name: str  # in commands and configurations
    title: str  # for people
    form: Form  # which parser reads it
    licence: str
    page: str  # the address for people
    rows: tuple[str, ...]  # file names of the interactions; the first that exists is read
    items: tuple[str, ...] = ()  # file names of the titles
    test: tuple[str, ...] = ()  # file names of a test part of its own
    url: str = ""  # for programs: the file's, the folder's with `test`; empty: people get it
    checksum: str = ""  # "algorithm:digest" of the file at `url`
    keep: Filter = ALL  # makes the papers' file of the original
    years: tuple[int, int] | None = None  # the first year, and the first that is left out again
    counts: Counts | None = None


def _movielens(form: Form, files: tuple[str, str], md5: str, counts: Counts) -> Source:
    size, (rows, items) = form.partition("-")[2], files
    name, page = f"ml-{size}", f"{GROUPLENS}/movielens/{size}/"
    title, terms = f"MovieLens {size.upper()}", TERMS["grouplens"]
    source = Source(name, title, form, terms, page, (rows,), (items,), checksum=f"md5:{md5}")
    return replace(source, url=f"{FILES}/movielens/{name}.zip", counts=counts)


def _amazon(name: str, title: str, category: str, counts: Counts, keep: Filter = ALL) -> Source:
    """Reviews of 2014: their 5-core, or all ratings if the papers filter them (`keep`)."""
    rows = tuple(f"reviews_{category}_5.json{end}" for end in (".gz", ""))
    if keep != ALL:
        rows = (f"ratings_{category}.csv", *(file.replace("_5.", ".") for file in rows))
    items = tuple(f"meta_{category}.json{end}" for end in (".gz", ""))
    source = Source(name, f"Amazon {title}", "amazon", TERMS["amazon"], UCSD, rows, items)
    return replace(source, url=f"{SNAP}/{rows[0]}", keep=keep, counts=counts)


def _lightgcn(folder: str, counts: Counts) -> Source:
    """A split of LightGCN: each line of both files has a user and the items of that user."""
    name, title = f"{folder}-lightgcn", f"{folder.title()} (LightGCN's split)"
    rows, test = ((f"{folder}/{part}.txt", f"{part}.txt") for part in ("train", "test"))
    page, url = f"github.com/{LIGHTGCN[0]}", "/".join(("githubusercontent.com", *LIGHTGCN))
    source = Source(name, title, "lists", TERMS[folder], f"https://{page}", rows, test=test)
    return replace(source, url=f"https://raw.{url}/data/{folder}", counts=counts)


BEAUTY, TOYS, SPORTS = "Beauty", "Toys_and_Games", "Sports_and_Outdoors"
VIDEO = "Amazon_Instant_Video"
PHONES, PHONES_2014 = "Cell_Phones_and_Accessories", "Cell Phones (2014 5-core; stand-in)"
ML_100K, ML_1M = "0e33842e24a9c977be4e0107933c0723", "c4d9eecfca2ab87c1945afe126590906"
# Rare items are dropped first, then short users, as the scripts of SASRec and BERT4Rec do.
LONG, USERS = Filter(min_user=5, min_item=5), Filter(min_user=5)

SOURCES: tuple[Source, ...] = (
    _movielens("movielens-100k", ("u.data", "u.item"), ML_100K, (943, 1682, 100_000)),
    _movielens("movielens-1m", ("ratings.dat", "movies.dat"), ML_1M, (6040, 3706, 1_000_209)),
    Source(
        "filmtrust",
        "FilmTrust",
        "filmtrust",
        TERMS["filmtrust"],
        f"{LIBREC}.html",
        ("ratings.txt",),
        url=f"{LIBREC}/filmtrust.zip",
        counts=(1508, 2071, 35_497),
    ),
    Source(
        "lastfm-2k",
        "Last.fm 2K (HetRec 2011), tag assignments",
        "lastfm",
        TERMS["lastfm"],
        f"{GROUPLENS}/hetrec-2011/",
        ("user_taggedartists-timestamps.dat", "user_taggedartists.dat"),
        ("artists.dat",),
        url=f"{FILES}/hetrec2011/hetrec2011-lastfm-2k.zip",
        counts=(1892, 12_523, 186_479),
    ),
    _amazon("amazon-beauty-bert4rec", "Beauty (2014)", BEAUTY, (40_226, 54_542, 353_962), LONG),
    _amazon("amazon-beauty-s3rec", "Beauty (2014, 5-core)", BEAUTY, (22_363, 12_101, 198_502)),
    _amazon("amazon-toys-s3rec", "Toys (2014, 5-core)", TOYS, (19_412, 11_924, 167_597)),
    _amazon("amazon-sports-s3rec", "Sports (2014, 5-core)", SPORTS, (35_598, 18_357, 296_337)),
    _amazon("amazon-video-pfedrec", "Instant Video (2014)", VIDEO, (8072, 11_830, 63_836), USERS),
    _amazon("amazon-office", "Office (2014, 5-core)", "Office_Products", (4905, 2420, 53_258)),
    _amazon("amazon-cellphones-5core", PHONES_2014, PHONES, (27_879, 10_429, 194_439)),
    Source(
        "yelp-s3rec",
        "Yelp (2019, 5-core)",
        "yelp",
        TERMS["yelp"],
        "https://business.yelp.com/data/resources/open-dataset/",
        ("yelp_academic_dataset_review.json", "review.json"),
        ("yelp_academic_dataset_business.json", "business.json"),
        keep=Filter(core=5),
        years=(2019, 2020),
        counts=(30_431, 20_033, 316_354),
    ),
    _lightgcn("gowalla", (29_858, 40_981, 1_027_370)),
    _lightgcn("yelp2018", (31_668, 38_048, 1_561_406)),
    Source(
        "qb-article", "QB-Article (Tenrec)", "tenrec", TERMS["tenrec"], TENREC, ("QB-article.csv",)
    ),
)
NAMES = tuple(source.name for source in SOURCES)


def find(name: str) -> Source:
    """The record of a name; an unknown name is an error that suggests the nearest one."""
    for source in SOURCES:
        if source.name == name:
            return source
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    names = f"known: {', '.join(NAMES)}; your own file: covey data import FILE"
    raise CoveyError(f"no known dataset '{name}'; {hint}{names}")
