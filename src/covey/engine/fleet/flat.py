"""One client's private state as plain tensors by name, for checkpoints."""

import torch

from covey.core.ragged import FieldDict, Fields, Ragged, Rows

MARK = "#"  # separates a field's name from the part of a field that is not a plain tensor


def flattened(kept: FieldDict) -> Fields:
    """The fields of `kept`; lists and rows become several tensors each."""
    out: Fields = {}
    for name, value in kept.items():
        if isinstance(value, Rows):
            out |= {f"{name}{MARK}rows/{k}": v for k, v in _lists(value.items).items()}
            out[f"{name}{MARK}rows/table"] = value.values
            out[f"{name}{MARK}rows/height"] = torch.tensor(value.height)
        elif isinstance(value, Ragged):
            out |= {f"{name}{MARK}lists/{k}": v for k, v in _lists(value).items()}
        else:
            out[name] = value
    return out


def _lists(lists: Ragged) -> Fields:
    return {"values": lists.values, "offsets": lists.offsets}


def restored(flat: Fields) -> FieldDict:
    """The inverse of `flattened`."""
    kept: FieldDict = {}
    for path, value in flat.items():
        name, _, part = path.partition(MARK)
        if not part:
            kept[name] = value
        elif part == "lists/values":
            kept[name] = Ragged(value, flat[f"{name}{MARK}lists/offsets"])
        elif part == "rows/table":
            at = f"{name}{MARK}rows/"
            items = Ragged(flat[f"{at}values"], flat[f"{at}offsets"])
            kept[name] = Rows(items, value, int(flat[f"{at}height"]))
    return kept
