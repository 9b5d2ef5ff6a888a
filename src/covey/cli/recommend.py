"""`covey recommend`: lists for users of a run, or for a new user, by the ids of the dataset."""

import argparse
import json
import sys
import warnings
from typing import Any

from covey.core.errors import CoveyError

from . import arguments


def act(options: argparse.Namespace) -> int:
    if not options.user and not options.items and not options.all:
        wrong = "name users: covey recommend RUN --user ID, or the items of a new one"
        raise CoveyError(f"{wrong}: --items ID ID")
    if (options.all and (options.user or not options.out)) or (options.out and options.items):
        raise CoveyError("a file has users of the dataset: --all --out FILE, or --user ID ID --out")
    if options.out:
        from covey.inference.writing import check_target

        check_target(options.out)
    arguments.check_run(options.run)
    from covey.inference.api import Recommender

    recommender = Recommender.load(options.run)
    there = set(map(str, recommender.users))
    if unknown := [name for name in options.user if name not in there]:
        remedy = "a new one gets a list from its own items: --items ID ID"
        raise CoveyError(f"there is no user {unknown[0]!r} in the run's dataset; {remedy}")
    k, hide_seen = options.k, not options.seen
    if options.out:
        recommender.recommend(options.user or None, k, hide_seen, out=options.out)
        done = {"users": len(set(options.user) or there), "out": str(options.out)}
        text = f"lists of {done['users']:,} users are in {options.out}"
        print(json.dumps(done) if options.json else text)
        return 0
    lists = list(recommender.ranked(options.user, k, hide_seen).items())
    if options.items:
        with warnings.catch_warnings(record=True, action="always") as unknown_items:
            lists.append(("new", recommender.ranked_new(options.items, k, hide_seen)))
        for note in unknown_items:
            print(f"covey: {note.message}", file=sys.stderr)
    rows = [{"user": user, "items": list(map(vars, chosen))} for user, chosen in lists]
    print(json.dumps(rows) if options.json else _text(lists))
    return 0


def _text(lists: list[tuple[Any, Any]]) -> str:
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
