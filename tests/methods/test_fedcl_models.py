"""FedCL and BIL on models that attend to the list: the same mechanisms, nothing of their own."""

import pytest

from covey.aggregate.combine import Mean, Sum
from covey.aggregate.step import Adam
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.methods.bil import PositiveHinge, Spreadout
from covey.methods.fedcl import HardNegatives
from covey.models.bert4rec import BERT4Rec
from covey.models.sasrec import SASRec
from covey.objectives.next_item import NextItemSoftmax
from covey.solvers import Local
from covey.testing import Conformance

pytestmark = pytest.mark.slow
HARD = HardNegatives(clusters=3, difficulty=0.25, count=4)
GRADIENT = Local("sgd", lr=1.0, epochs=1)
STEP = Adam(
    0.01, eps=1e-4
)  # keys have a bias that attention does not feel: its gradient is rounding alone


class TestFedCLOnSASRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        objective = NextItemSoftmax(stored=12, local=3, in_batch=True)
        return Method(
            SASRec(8, layers=1),
            objective,
            catalogue,
            GRADIENT,
            (HARD,),
            combine=Sum(),
            server_step=STEP,
        )


class TestFedCLOnBERT4Rec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        objective = NextItemSoftmax(stored=12, local=3, in_batch=True, hide=0.4)
        return Method(
            BERT4Rec(8, layers=1),
            objective,
            catalogue,
            GRADIENT,
            (HARD,),
            combine=Sum(),
            server_step=STEP,
        )


class TestBilOnBERT4Rec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        objective = PositiveHinge(hide=0.4)
        return Method(
            BERT4Rec(8, layers=1),
            objective,
            catalogue,
            GRADIENT,
            (Spreadout(),),
            combine=Mean(),
            server_step=STEP,
        )
