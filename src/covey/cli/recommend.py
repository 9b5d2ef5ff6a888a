"""`covey recommend`: lists for users of a run, or for somebody new, by their own ids."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError


def add(commands: Any) -> None:
    command = commands.add_parser(
        "recommend",
        help="items for users of a run, or for a new one",
        epilog="example: covey recommend runs/first --user 3 7 -k 5",
    )
    command.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    command.add_argument(
        "--user", nargs="+", action="extend", default=[], metavar="ID", help="users of the dataset"
    )
    command.add_argument(
        "--items", nargs="+", default=[], metavar="ID", help="the items of a new user, oldest first"
    )
    command.add_argument("-k", type=int, default=10, help="items for each (default: 10)")
    command.add_argument("--seen", action="store_true", help="also items that the user has already")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(act=_recommend)


def _recommend(options: argparse.Namespace) -> int:
    from covey.inference.api import Recommender

    if not options.user and not options.items:
        raise CoveyError(
            "name users: covey recommend RUN --user ID, or the items of a new one: --items ID ID"
        )
    recommender = Recommender.load(options.run)
    _all_known(
        "user",
        options.user,
        recommender.users,
        "a new one gets a list from its own items: --items ID ID",
    )
    _all_known("item", options.items, recommender.items, "give items that the run was trained with")
    lists: list[tuple[str, Any]] = list(
        recommender.ranked(options.user, options.k, not options.seen).items()
    )
    if options.items:
        lists.append(("new", recommender.ranked_new(options.items, options.k, not options.seen)))
    print(_json(lists) if options.json else _text(lists))
    return 0


def _all_known(kind: str, asked: list[str], known: list[Any], remedy: str) -> None:
    """Said here, since the recommender's own words are Python's."""
    there = set(map(str, known))
    for name in asked:
        if name not in there:
            raise CoveyError(f"there is no {kind} {name!r} in the run's dataset; {remedy}")


def _json(lists: list[tuple[str, Any]]) -> str:
    return json.dumps(
        [{"user": user, "items": [vars(choice) for choice in chosen]} for user, chosen in lists]
    )


def _text(lists: list[tuple[str, Any]]) -> str:
    from covey.study.render.tables import Screen, framed_table

    screen = Screen()
    titled = any(choice.title for _, chosen in lists for choice in chosen)
    heads = ("", "item", "title", "score") if titled else ("", "item", "score")
    for user, chosen in lists:
        table = framed_table(f"user {user}", *heads, left=len(heads) - 1)
        table.title_justify = "left"
        for place, choice in enumerate(chosen, 1):
            title = [choice.title] if titled else []
            table.add_row(str(place), str(choice.item), *title, f"{choice.score:.3f}")
        screen.show(table)
    return str(screen)
