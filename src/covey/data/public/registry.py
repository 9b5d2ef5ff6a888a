"""Where the public datasets come from: one record each. Nothing here reads or fetches."""

import difflib
from dataclasses import dataclass
from typing import Literal

from covey.core.errors import CoveyError
from covey.data.folder import Filter

Form = Literal["movielens-100k", "movielens-1m", "filmtrust", "lastfm", "amazon", "yelp", "tenrec"]

GROUPLENS = (
    "GroupLens, University of Minnesota: for research; no redistribution and no commercial use without permission;"
    " acknowledge the source in publications"
)
AMAZON = "no licence is stated; the authors ask to cite McAuley et al. (SIGIR 2015) and He and McAuley (WWW 2016)"
FILES = "https://files.grouplens.org/datasets"
SNAP = "https://snap.stanford.edu/data/amazon/productGraph/categoryFiles"
UCSD = "https://jmcauley.ucsd.edu/data/amazon/"
ALL = Filter()


@dataclass(frozen=True)
class Source:
    """One dataset: its origin, its terms, its files and what the papers took of it."""

    name: str
    title: str
    form: Form  # which parser reads it
    licence: str
    page: str  # for people
    rows: tuple[str, ...]  # file of the interactions; the first of these that is there
    items: tuple[str, ...] = ()  # file of the titles, where there is one
    url: str = ""  # for programs; empty: only by hand
    checksum: str = ""  # algorithm:digest of what the url gives
    keep: Filter = ALL  # what makes the papers' file of the original, at preparation
    core: int = 0  # k-core at preparation: users and items with k rows, again until nothing changes
    years: tuple[int, int] | None = None  # first year, and the first that is not taken any more
    counts: tuple[int, int, int] | None = None  # users, items, rows that preparation should give


def _amazon(name: str, title: str, category: str, counts: tuple[int, int, int]) -> Source:
    """A 5-core of the 2014 reviews."""
    rows = tuple(f"reviews_{category}_5.json{end}" for end in (".gz", ""))
    items = tuple(f"meta_{category}.json{end}" for end in (".gz", ""))
    return Source(
        name, title, "amazon", AMAZON, UCSD, rows, items, f"{SNAP}/{rows[0]}", counts=counts
    )


def _ratings(
    name: str, title: str, category: str, keep: Filter, counts: tuple[int, int, int]
) -> Source:
    """All ratings of 2014, for the papers that cut their own core."""
    rows = (f"ratings_{category}.csv", f"reviews_{category}.json.gz", f"reviews_{category}.json")
    items = tuple(f"meta_{category}.json{end}" for end in (".gz", ""))
    return Source(
        name,
        title,
        "amazon",
        AMAZON,
        UCSD,
        rows,
        items,
        f"{SNAP}/{rows[0]}",
        keep=keep,
        counts=counts,
    )


SOURCES: tuple[Source, ...] = (
    Source(
        "ml-100k",
        "MovieLens 100K",
        "movielens-100k",
        GROUPLENS,
        "https://grouplens.org/datasets/movielens/100k/",
        ("u.data",),
        ("u.item",),
        f"{FILES}/movielens/ml-100k.zip",
        "md5:0e33842e24a9c977be4e0107933c0723",
        counts=(943, 1682, 100_000),
    ),
    Source(
        "ml-1m",
        "MovieLens 1M",
        "movielens-1m",
        GROUPLENS,
        "https://grouplens.org/datasets/movielens/1m/",
        ("ratings.dat",),
        ("movies.dat",),
        f"{FILES}/movielens/ml-1m.zip",
        "md5:c4d9eecfca2ab87c1945afe126590906",
        counts=(6040, 3706, 1_000_209),
    ),
    Source(
        "filmtrust",
        "FilmTrust",
        "filmtrust",
        "unclear: no licence is stated; cite Guo, Zhang and Yorke-Smith (IJCAI 2013)",
        "https://guoguibing.github.io/librec/datasets.html",
        ("ratings.txt",),
        url="https://guoguibing.github.io/librec/datasets/filmtrust.zip",
        counts=(1508, 2071, 35_497),
    ),
    Source(
        "lastfm-2k",
        "Last.fm 2K (HetRec 2011), tag assignments",
        "lastfm",
        "non-commercial use; cite Cantador, Brusilovsky and Kuflik (RecSys 2011) and Last.fm",
        "https://grouplens.org/datasets/hetrec-2011/",
        ("user_taggedartists-timestamps.dat", "user_taggedartists.dat"),
        ("artists.dat",),
        f"{FILES}/hetrec2011/hetrec2011-lastfm-2k.zip",
        counts=(1892, 12_523, 186_479),
    ),
    # Rare items first, then short users: the order in which SASRec's and then BERT4Rec's scripts cut it.
    _ratings(
        "amazon-beauty-bert4rec",
        "Amazon Beauty (2014)",
        "Beauty",
        Filter(min_user=5, min_item=5),
        (40_226, 54_542, 353_962),
    ),
    _amazon(
        "amazon-sports-s3rec",
        "Amazon Sports (2014, 5-core)",
        "Sports_and_Outdoors",
        (35_598, 18_357, 296_337),
    ),
    _ratings(
        "amazon-video-pfedrec",
        "Amazon Instant Video (2014)",
        "Amazon_Instant_Video",
        Filter(min_user=5),
        (8072, 11_830, 63_836),
    ),
    _amazon(
        "amazon-office", "Amazon Office (2014, 5-core)", "Office_Products", (4905, 2420, 53_258)
    ),
    _amazon(
        "amazon-cellphones-5core",
        "Amazon Cell Phones (2014 5-core; stand-in)",
        "Cell_Phones_and_Accessories",
        (27_879, 10_429, 194_439),
    ),
    Source(
        "yelp-s3rec",
        "Yelp (2019, 5-core)",
        "yelp",
        "Yelp dataset terms: academic use, no redistribution; accept them on the page",
        "https://business.yelp.com/data/resources/open-dataset/",
        ("yelp_academic_dataset_review.json", "review.json"),
        ("yelp_academic_dataset_business.json", "business.json"),
        core=5,
        years=(2019, 2020),
        counts=(30_431, 20_033, 316_354),
    ),
    Source(
        "qb-article",
        "QB-Article (Tenrec)",
        "tenrec",
        "Tenrec licence: on request, research only, no redistribution",
        "https://tenrec0.github.io/",
        ("QB-article.csv",),
    ),
)
NAMES = tuple(source.name for source in SOURCES)


def find(name: str) -> Source:
    """The record of a name, or one line with the nearest."""
    for source in SOURCES:
        if source.name == name:
            return source
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise CoveyError(
        f"no known dataset '{name}'; {hint}known: {', '.join(NAMES)}; your own file: covey data import FILE"
    )
