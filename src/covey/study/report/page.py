"""The page of one run, and of several runs side by side, with lists of three users by title."""

from collections.abc import Sequence
from dataclasses import dataclass

from covey.core import CoveyError, Ragged, toml_writer
from covey.inference.recommender import Recommender
from covey.run.checkpoint import STATE
from covey.study.render import markup, wording
from covey.study.render.charts import item_map
from covey.study.render.markup import Child, Html, aside, figure, gallery, join, section, tag
from covey.study.render.tables import table

from .costs import cost, left_the_device
from .data import Group, Run, Setting
from .items import MOST_ITEMS, map_of, titles_of
from .sections import activity, cards, exposure, headline, learning, results, verdict

PLACES = 8  # of a list of recommendations
LATEST = 5  # of the items that a user has
LARGEST = 1 << 28  # bytes of the clients' state; a larger one is not read for three users
THIRDS = (("light", 1 / 6), ("medium", 3 / 6), ("heavy", 5 / 6))


def report(setting: Setting) -> str:
    group = setting.groups[0]
    heading = f"{group.name} on {setting.runs[0].result['dataset']['name']}"
    about = group.first.config.get("title", "")
    lead = tag("p", about, class_="lead") if about else None
    first = [verdict(setting, group), headline(group), cards(setting, group)]
    return markup.page(heading, lead, *first, *body(setting))


def comparison(settings: Sequence[Setting]) -> str:
    parts: list[Child] = []
    if len(settings) > 1:
        apart = "These runs differ in data, split or evaluation: do not compare figures across the"
        parts.append(tag("p", f"{apart} parts of this page.", class_="lead"))
    for setting in settings:
        parts.append(tag("h1", setting.title) if len(settings) > 1 else None)
        lines = (join(verdict(setting, g), headline(g)) for g in setting.groups if not g.pooled)
        parts.append(tag("div", *lines, class_="verdicts"))
        parts += body(setting)
    many = sum(len(setting.groups) for setting in settings)
    names = dict.fromkeys(setting.runs[0].result["dataset"]["name"] for setting in settings)
    return markup.page(f"{many} methods on {', '.join(names)}", *parts)


def body(setting: Setting) -> list[Child]:
    first = (results, learning, exposure, cost, left_the_device, activity, maps, recommendations)
    return [*(part(setting) for part in first), configurations(setting.groups)]


def maps(setting: Setting) -> Html | None:
    many = sum(not group.pooled for group in setting.groups)
    most = min(MOST_ITEMS, max(2 * MOST_ITEMS // max(many, 1), 200))  # keeps the page small
    found = [(group, drawn) for group in setting.groups if (drawn := map_of(group.first, most))]
    if not found:
        return None
    figures = []
    for group, drawn in found:
        caption = f"{group.name}: {drawn.explained:.0%} of the variance in two directions"
        figures.append(figure(caption, item_map(group.name, drawn.spots)))
    first = found[0][1]
    part = f"The {len(first.spots):,} most popular of {first.n_items:,} items"
    shown = part if len(first.spots) < first.n_items else f"All {first.n_items:,} items"
    how = "at their places in the public item table; larger dots are more popular. Point at one."
    note = f" Titles are missing: {first.note}." if first.note else ""
    find = "Find a title"
    search = tag("input", type="search", placeholder=find, aria_label=find, class_="find")
    return section("Item map", tag("p", f"{shown} {how}{note}"), search, gallery(figures))


def configurations(groups: Sequence[Group]) -> Html:
    shown = []
    for group in groups:
        seeds = ", ".join(str(run.seed) for run in group.runs)
        several, version = "s" * (len(group.runs) > 1), group.first.result.get("covey", "?")
        name = join(group.name, tag("small", f" seed{several} {seeds}, covey {version}"))
        shown.append(markup.folded(name, tag("pre", toml_writer.dumps(group.first.config))))
    return section("Configuration", *shown)


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
    if len(names) == 1:
        lists = ((tag("li", _ticked(*one)) for one in person.lists[0]) for person in people)
        alone = (_shown(person, tag("ol", *of)) for person, of in zip(people, lists))
        shown = tag("div", *alone, class_="people")
    else:
        shown = join(*(_beside(person, names) for person in people))
    return section("Recommendations", shown, aside(wording.note("recommendations")))


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
        lists = []
        for recommender in asked:  # as in the test: the device knows train and validation items
            held = {recommender.items[i] for i in _of(recommender.prepared.split.test, place)}
            user = recommender.users[place]
            ranked = recommender.ranked([user], PLACES, as_tested=True)[user]
            lists.append([(c.title or f"item {c.item}", c.item in held) for c in ranked])
        latest = [titles[i] for i in has[-LATEST:]]
        out.append(Person(f"A {name} user, {len(has)} items", users[place], latest, lists))
    return out


def _of(lists: Ragged, place: int) -> list[int]:
    start, end = lists.offsets[place : place + 2].tolist()
    return [int(i) for i in lists.values[start:end].tolist()]


def _ticked(title: str, held: bool) -> Html:
    return tag("span", title, " ✓", class_="held") if held else join(title)


def _shown(person: Person, lists: Html) -> Html:
    about = join(person.about, tag("small", f" id {person.user}"))
    return figure(about, aside("Latest: ", ", ".join(person.latest)), lists)


def _beside(person: Person, names: list[str]) -> Html:
    rows: list[list[Child]] = []
    for place in range(PLACES):
        lists = person.lists
        rows.append([place + 1, *(_ticked(*of[place]) if place < len(of) else "" for of in lists)])
    return _shown(person, table(["", *names], rows, left=len(names) + 1, kind="lists"))
