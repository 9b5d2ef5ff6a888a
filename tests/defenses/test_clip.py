"""Clipping of rows: by hand, and beside any combine."""

import pytest
import torch

from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Upload
from covey.core.ragged import Ragged, Rows
from covey.defenses.clip import ClipRows
from covey.defenses.krum import Krum
from covey.engine.method import Method
from covey.engine.rounds import start, view
from covey.methods.cofedrec import CoClusters
from covey.models.mf import MF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance


class TestClippedMF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, epochs=2), (ClipRows(0.01),))


class TestClippedCoClustersWithKrum(Conformance):
    """A filter, a grouping and a robust rule in one method."""

    def method(self, catalogue: Catalogue) -> Method:
        model, solver = LinearScore(4, keep_items=True), Local("sgd", 0.1, epochs=1)
        return Method(model, Bce(), catalogue, solver, (ClipRows(2.0),), CoClusters(3), Krum(0.2))


def clipped(bound: float, upload: Upload) -> Upload:
    method = Method(MF(2), Bce(), Catalogue(5), mechanisms=(ClipRows(bound),))
    return method.mechanisms[0].filter_uploads(
        view(start(method), method, "clip rows", Round(1, upload.ids_C)), upload
    )


def test_by_hand() -> None:
    rows = Rows(Ragged.of([[0, 3], [3]]), torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), 5)
    table_CID = torch.tensor([[[0.0, 10.0], [1.0, 0.0]], [[-6.0, 8.0], [0.0, 0.0]]])
    upload = Upload(torch.arange(2), torch.ones(2), {"items": rows}, {"table": table_CID})
    out = clipped(1.0, upload)
    torch.testing.assert_close(
        out.update["items"].values, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    )
    torch.testing.assert_close(
        out.model["table"], torch.tensor([[[0.0, 1.0], [1.0, 0.0]], [[-0.6, 0.8], [0.0, 0.0]]])
    )
    assert torch.equal(
        clipped(100.0, upload).model["table"], table_CID
    )  # under the bound nothing changes


def test_bound_must_be_positive() -> None:
    with pytest.raises(CoveyError, match="over 0"):
        ClipRows(0.0)
