"""The section of the page on recommendations: the lists of three users, by title."""

from dataclasses import dataclass

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.inference.recommender import Recommender
from covey.inference.writing import Choice
from covey.run.checkpoint import STATE
from covey.study.render.markup import Child, Html, join, tag
from covey.study.render.page_shell import aside, figure, section
from covey.study.render.tables import table

from .data import Run, Setting
from .items import titles_of

PLACES = 8  # of a list of recommendations
LATEST = 5  # of the items that a user has
LARGEST = 1 << 28  # bytes of the clients' state; a larger one is not read for three users
THIRDS = (("light", 1 / 6), ("medium", 3 / 6), ("heavy", 5 / 6))


@dataclass(frozen=True)
class Person:
    about: str
    user: object  # id in the data
    latest: list[str]
    lists: list[list[tuple[str, bool]]]  # by method: titles, and whether an item was held out


def recommendations(setting: Setting) -> Html | None:
    """Return the section, or None if no run can recommend: its data or client state is missing."""
    found = [(g.name, asked) for g in setting.groups if (asked := _load(g.first))]
    if not found:
        return None
    names = [name for name, _ in found]
    people = _people([asked for _, asked in found])
    note = (
        "Ranked with what each device keeps at the end of the run; ticked items were held out."
        " Only a simulation can show this: in production, only the user's own device could."
    )
    if len(names) == 1:
        shown = tag("div", *(_alone(person) for person in people), class_="people")
    else:
        shown = join(*(_beside(person, names) for person in people))
    return section("Recommendations", shown, aside(note))


def _load(run: Run) -> Recommender | None:
    state = run.folder / STATE
    if "pooled" in run.config or not state.exists() or state.stat().st_size > LARGEST:
        return None
    try:
        return Recommender.load(run.folder, "cpu")
    except CoveyError:
        return None


def _people(asked: list[Recommender]) -> list[Person]:
    """Return one user of each third by activity, the same ones for every method."""
    split, users = asked[0].prepared.split, asked[0].users
    tested = split.test.lengths.nonzero()[:, 0]
    order = tested[split.train.lengths[tested].argsort(stable=True)]
    out = []
    for name, at in THIRDS:
        place = int(order[int(len(order) * at)])
        has = _of(split.train, place)
        titles = titles_of(asked[0].prepared)
        lists = [_list(recommender, place) for recommender in asked]
        latest = [titles[i] for i in has[-LATEST:]]
        out.append(Person(f"A {name} user, {len(has)} items", users[place], latest, lists))
    return out


def _list(recommender: Recommender, place: int) -> list[tuple[str, bool]]:
    """Rank as in the test, where the device knows the training and validation items only."""
    split, items, user = recommender.prepared.split, recommender.items, recommender.users[place]
    held = {items[i] for i in _of(split.test, place)}
    ranked: list[Choice] = recommender.ranked([user], PLACES, as_tested=True)[user]
    return [(choice.title or f"item {choice.item}", choice.item in held) for choice in ranked]


def _of(lists: Ragged, place: int) -> list[int]:
    start, end = lists.offsets[place : place + 2].tolist()
    return [int(i) for i in lists.values[start:end].tolist()]


def _ticked(title: str, held: bool) -> Html:
    return tag("span", title, " ✓", class_="held") if held else join(title)


def _shown(person: Person, lists: Html) -> Html:
    about = join(person.about, tag("small", f" id {person.user}"))
    return figure(about, aside("Latest: ", ", ".join(person.latest)), lists)


def _alone(person: Person) -> Html:
    return _shown(person, tag("ol", *(tag("li", _ticked(*one)) for one in person.lists[0])))


def _beside(person: Person, names: list[str]) -> Html:
    rows: list[list[Child]] = []
    for place in range(PLACES):
        lists = person.lists
        rows.append([place + 1, *(_ticked(*of[place]) if place < len(of) else "" for of in lists)])
    return _shown(person, table(["", *names], rows, left=len(names) + 1, kind="lists"))
