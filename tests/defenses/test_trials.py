"""What a filter tries is the server's own step; and bounds that come from the round's own rows."""

from dataclasses import replace

import pytest
import torch

from covey.aggregate.step import Adam
from covey.contract.mechanism import Mechanism
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Upload
from covey.core.ragged import Ragged, Rows
from covey.defenses.clip import ClipRows
from covey.defenses.clip_clients import ClipClients
from covey.defenses.hics import Bank
from covey.defenses.union import Union, uniformity
from covey.engine.method import Method
from covey.engine.rounds import start, view
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from robust_loops import random_rows, upload_of


def filtered(mechanism: Mechanism, upload: Upload) -> Upload:
    method = Method(MF(2), Bce(), Catalogue(100), mechanisms=(mechanism,))
    return mechanism.filter_uploads(
        view(start(method), method, mechanism.name, Round(1, upload.ids_C)), upload
    )


def test_rows_are_clipped_at_a_quantile() -> None:
    """Rows of length 1 to 100: at 0.99 only the longest is cut, to 99, also with few attackers."""
    values = torch.arange(1.0, 101.0)[:, None] * torch.tensor([0.6, 0.8])
    rows = Rows(Ragged.of([[i] for i in range(100)]), values, 100)
    cut = (
        filtered(ClipRows(1.0, relative=True, quantile=0.99), upload_of(rows))
        .update["items"]
        .values.norm(dim=1)
    )
    torch.testing.assert_close(cut, torch.arange(1.0, 101.0).clamp(max=99.0))
    far = torch.ones(100, 1)
    far[99] = 1000.0
    pushed = upload_of(replace(rows, values=values * far))
    out = filtered(ClipRows(1.0, relative=True, quantile=0.99), pushed).update["items"].values
    torch.testing.assert_close(out.norm(dim=1), cut)
    with pytest.raises(CoveyError, match="quantile"):
        ClipClients(1.0, relative=True, quantile=1.0)


def test_union_tries_the_servers_own_step() -> None:
    """With Adam's moments every row moves; a client's table is that after a step with it alone."""
    torch.manual_seed(3)
    method = Method(
        MF(3), Bce(), Catalogue(12), mechanisms=(Union(items=12),), server_step=Adam(0.1)
    )
    server, rows = start(method), random_rows(5, 12, 3, 2)
    moments = {
        "items/m": torch.randn(12, 3),
        "items/v": torch.rand(12, 3),
        "items/t": torch.tensor(4),
    }
    server = replace(server, state={"server step": moments})
    seen = view(server, method, "union", Round(5, torch.arange(5)))
    assert seen.preview_step is not None
    got = Union(items=12)._far(seen, torch.arange(12), rows)
    for client, dense_ID in enumerate(rows.dense()):
        table = Adam(0.1).step(moments, server.public, {"items": dense_ID})[1]["items"].double()
        assert float(got[client]) == pytest.approx(float(torch.pdist(table).mean()), rel=1e-6)
    assert not torch.allclose(got, uniformity(server.public["items"], rows, 1.0))


def test_a_step_that_ranks_rows_is_tried_by_adding() -> None:
    method = Method(MF(2), Bce(), Catalogue(4), server_step=Bank(0.5))
    server = start(method)
    seen = view(server, method, "union", Round(1, torch.arange(2)))
    assert seen.preview_step is not None
    tried = seen.preview_step("items", torch.tensor([1, 1]), torch.ones(2, 2))
    torch.testing.assert_close(tried, server.public["items"][[1, 1]] + 1)
