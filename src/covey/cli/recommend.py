"""`covey recommend`: lists for users of a run, or for a new user, by the ids of the dataset."""

import argparse
import json
from pathlib import Path
from typing import Any

from covey.core.errors import CoveyError

from . import arguments


def add(commands: Any) -> None:
    command = commands.add_parser(
        "recommend",
        help="items for users of a run, or for a new one",
        epilog="example: covey recommend runs/first --user 3 7 -k 5",
    )
    option = command.add_argument
    option("run", type=Path, metavar="RUN", help="the folder of a run")
    users, items = "users of the dataset", "the items of a new user, oldest first"
    option("--user", nargs="+", action="extend", default=[], metavar="ID", help=users)
    option("--items", nargs="+", default=[], metavar="ID", help=items)
    option("-k", type=int, default=10, help="items for each (default: 10)")
    option("--seen", action="store_true", help="also items that the user has already")
    arguments.finish(command, _recommend, "the lists")


def _recommend(options: argparse.Namespace) -> int:
    if not options.user and not options.items:
        raise CoveyError(
            "name users: covey recommend RUN --user ID, or the items of a new one: --items ID ID"
        )
    arguments.check_run(options.run)
    from covey.inference.api import Recommender

    recommender = Recommender.load(options.run)
    remedy = "a new one gets a list from its own items: --items ID ID"
    _check_known("user", options.user, recommender.users, remedy)
    remedy = "give items that the run was trained with"
    _check_known("item", options.items, recommender.items, remedy)
    k, hide_seen = options.k, not options.seen
    lists: list[tuple[str, Any]] = [*recommender.ranked(options.user, k, hide_seen).items()]
    if options.items:
        lists.append(("new", recommender.ranked_new(options.items, k, hide_seen)))
    print(_json(lists) if options.json else _text(lists))
    return 0


def _check_known(kind: str, asked: list[str], known: list[Any], remedy: str) -> None:
    """Refuses unknown ids with the remedy of the command line instead of that of Python."""
    there = set(map(str, known))
    for name in asked:
        if name not in there:
            raise CoveyError(f"there is no {kind} {name!r} in the run's dataset; {remedy}")


def _json(lists: list[tuple[str, Any]]) -> str:
    rows = [{"user": user, "items": list(map(vars, chosen))} for user, chosen in lists]
    return json.dumps(rows)


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
