"""One self-contained page: style and script inside, nothing fetched, text escaped."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from covey import __version__
from covey.core import toml_writer
from covey.study.render.markup import Child, Html, join, tag

from .attacked import exposure, headline
from .costs import cost
from .data import Group, Setting
from .disclosure import left_the_device
from .figures import item_map
from .items import MOST_ITEMS, map_of
from .people import recommendations
from .sections import activity, cards, learning, results, section, verdict


def report(setting: Setting) -> str:
    """The page of one method, on one or more seeds."""
    group = setting.groups[0]
    heading = f"{group.name} on {setting.runs[0].result['dataset']['name']}"
    about = group.first.config.get("title", "")
    lead = tag("p", about, class_="lead") if about else None
    return page(heading, lead, verdict(setting, group), headline(group), cards(setting, group), *body(setting))


def comparison(settings: Sequence[Setting]) -> str:
    """The page of several methods side by side; runs that were measured otherwise stand apart."""
    parts: list[Child] = []
    if len(settings) > 1:
        note = "These runs differ in data, split or measure: their figures must not be compared across the parts."
        parts.append(tag("p", note, class_="lead"))
    for setting in settings:
        parts.append(tag("h1", setting.title) if len(settings) > 1 else None)
        lines = (join(verdict(setting, g), headline(g)) for g in setting.groups if not g.pooled)
        parts.append(tag("div", *lines, class_="verdicts"))
        parts += body(setting)
    many = sum(len(setting.groups) for setting in settings)
    names = dict.fromkeys(setting.runs[0].result["dataset"]["name"] for setting in settings)
    return page(f"{many} methods on {', '.join(names)}", *parts)


def body(setting: Setting) -> list[Child]:
    return [
        results(setting),
        learning(setting),
        exposure(setting),
        cost(setting),
        left_the_device(setting),
        activity(setting),
        maps(setting),
        recommendations(setting),
        configurations(setting.groups),
    ]


def maps(setting: Setting) -> Html | None:
    """The item tables that everybody receives, one map for each method that has one."""
    many = sum(not group.pooled for group in setting.groups)
    most = min(MOST_ITEMS, max(2 * MOST_ITEMS // max(many, 1), 200))  # so that the page stays small
    found = [(group, drawn) for group in setting.groups if (drawn := map_of(group.first, most))]
    if not found:
        return None
    figures = []
    for group, drawn in found:
        caption = f"{group.name}: two directions hold {drawn.explained:.0%} of the variance"
        figures.append(tag("figure", tag("figcaption", caption), item_map(group.name, drawn.spots)))
    first = found[0][1]
    shown = f"The {len(first.spots):,} most popular of {first.n_items:,} items"
    shown = shown if len(first.spots) < first.n_items else f"All {first.n_items:,} items"
    note = f" Titles are missing: {first.note}." if first.note else ""
    find = tag("input", type="search", placeholder="Find a title", aria_label="Find a title", class_="find")
    return section(
        "Item map",
        tag("p", f"{shown} where the public item table has them; larger dots are more popular. Point at one.{note}"),
        Html(find.removesuffix("</input>")),
        tag("div", *figures, class_="figures-row"),
    )


def configurations(groups: Sequence[Group]) -> Html:
    folded = (
        tag("details", tag("summary", group.name, tag("small", f" {_where(group)}")), tag("pre", _toml(group)))
        for group in groups
    )
    return section("Configuration", *folded)


def _where(group: Group) -> str:
    seeds = ", ".join(str(run.seed) for run in group.runs)
    return f"seed{'s' if len(group.runs) > 1 else ''} {seeds}, covey {group.first.result.get('covey', '?')}"


def _toml(group: Group) -> str:
    return toml_writer.dumps(group.first.config)


def page(heading: str, *parts: Child) -> str:
    style, script = (resources.files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    print_of_script = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing may be fetched, and no script runs but ours, should text ever get through unescaped.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{print_of_script}'"
    head = join(
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{heading} – Covey"),
        tag("style", Html(style)),
    )
    main = tag("main", tag("header", tag("h1", heading)), *parts)
    end = tag("footer", f"Made by covey {__version__}. This page fetches nothing and sends nothing.")
    tip = tag("div", id="tip", role="status", hidden="hidden")
    content = join(tag("head", head), tag("body", main, end, tip, tag("script", Html(script))))
    return f"<!doctype html>\n{tag('html', content, lang='en')}\n"
