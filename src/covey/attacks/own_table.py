"""Attacks on uploaded item tables (CoFedRec): an attacker treats its own table as a shared one."""

from dataclasses import replace
from typing import Any, cast

from covey.contract.attack import AttackView
from covey.contract.model import Model
from covey.core import Download, Ragged, Rows, Upload


def uploads_table(model: Model) -> bool:
    return "items" in model.uploaded


def as_shared(view: AttackView) -> AttackView:
    """The view of one attacker, with its own table in place of a shared one."""
    public = view.download.public
    own = {**public.shared, "items": view.kept["items"][0]}
    model = cast(Model, replace(cast(Any, view.model), keep_items=False))
    download = Download(replace(public, shared=own), view.download.extra)
    return replace(view, model=model, download=download)


def as_update(view: AttackView, upload: Upload) -> Upload:
    """The honest upload as an update, which has the rows that changed."""
    if not upload.model:
        return upload
    change_ID = upload.model["items"][0] - view.kept["items"][0]
    rows = change_ID.any(1).nonzero()[:, 0]
    moved = Rows(Ragged(rows, rows.new_tensor([0, len(rows)])), change_ID[rows], len(change_ID))
    return replace(upload, update={**upload.update, "items": moved}, model={})


def as_table(view: AttackView, upload: Upload) -> Upload:
    """The poisoned update as the table to upload."""
    rows, table_ID = upload.update.get("items"), view.kept["items"][0]
    if not isinstance(rows, Rows):
        return upload
    table_ID = table_ID.index_add(0, rows.items.values, rows.values.to(table_ID))
    rest = {k: v for k, v in upload.update.items() if k != "items"}
    return replace(upload, update=rest, model={"items": table_ID[None]})
