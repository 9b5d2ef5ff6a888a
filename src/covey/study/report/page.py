"""The page of one run, and of several runs side by side."""

from collections.abc import Sequence

from covey.core import toml_writer
from covey.study.render.charts import item_map
from covey.study.render.markup import Child, Html, join, tag
from covey.study.render.page_shell import figure, folded, gallery, page, section

from .attacked import exposure, headline
from .costs import cost
from .data import Group, Setting
from .disclosure import left_the_device
from .items import MOST_ITEMS, map_of
from .people import recommendations
from .sections import activity, cards, learning, results, verdict

APART = (
    "These runs differ in data, split or evaluation: do not compare figures across the parts of"
    " this page."
)


def report(setting: Setting) -> str:
    """Return the page of one method with one or more seeds."""
    group = setting.groups[0]
    heading = f"{group.name} on {setting.runs[0].result['dataset']['name']}"
    about = group.first.config.get("title", "")
    lead = tag("p", about, class_="lead") if about else None
    first = [verdict(setting, group), headline(group), cards(setting, group)]
    return page(heading, lead, *first, *body(setting))


def comparison(settings: Sequence[Setting]) -> str:
    """Return the page of several methods, with a part for each group of comparable runs."""
    parts: list[Child] = []
    if len(settings) > 1:
        parts.append(tag("p", APART, class_="lead"))
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
    """Show a map of the public item table of each method that has one."""
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
    return section(
        "Item map",
        tag("p", f"{shown} {how}{note}"),
        tag("input", type="search", placeholder=find, aria_label=find, class_="find"),
        gallery(figures),
    )


def configurations(groups: Sequence[Group]) -> Html:
    shown = (
        folded(
            join(group.name, tag("small", f" {_where(group)}")),
            tag("pre", toml_writer.dumps(group.first.config)),
        )
        for group in groups
    )
    return section("Configuration", *shown)


def _where(group: Group) -> str:
    seeds = ", ".join(str(run.seed) for run in group.runs)
    version = group.first.result.get("covey", "?")
    return f"seed{'s' if len(group.runs) > 1 else ''} {seeds}, covey {version}"
