"""Attacks where clients upload item tables of their own, as CoFedRec's do.

Attacks are written for an update of a shared table. An attacker takes the table that it holds for the shared one,
and adds to it the update that it would have sent.
"""

from dataclasses import replace
from typing import Any, cast

from covey.contract.attack import AttackView
from covey.contract.model import Model
from covey.core.messages import Download, Upload
from covey.core.ragged import Ragged, Rows


def uploads_table(model: Model) -> bool:
    return "items" in model.uploaded


def as_shared(view: AttackView) -> AttackView:
    """What one attacker sees, its own table in the place of a shared one."""
    public = view.download.public
    own = {**public.shared, "items": view.kept["items"][0]}
    model = cast(Model, replace(cast(Any, view.model), keep_items=False))
    return replace(
        view, model=model, download=Download(replace(public, shared=own), view.download.extra)
    )


def as_update(view: AttackView, upload: Upload) -> Upload:
    """The honest answer as an update: the rows that changed."""
    if not upload.model:
        return upload
    change_ID = upload.model["items"][0] - view.kept["items"][0]
    rows = change_ID.any(1).nonzero()[:, 0]
    moved = Rows(Ragged(rows, rows.new_tensor([0, len(rows)])), change_ID[rows], len(change_ID))
    return replace(upload, update={**upload.update, "items": moved}, model={})


def as_table(view: AttackView, upload: Upload) -> Upload:
    """The table that is sent instead."""
    rows = upload.update.get("items")
    if not isinstance(rows, Rows):
        return upload
    table_ID = view.kept["items"][0].index_add(
        0, rows.items.values, rows.values.to(view.kept["items"])
    )
    rest = {k: v for k, v in upload.update.items() if k != "items"}
    return replace(upload, update=rest, model={"items": table_ID[None]})
