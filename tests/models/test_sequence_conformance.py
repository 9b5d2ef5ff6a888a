"""The conformance suite on every sequence model and objective, with one or several local steps."""

from covey.aggregate.combine import Mean, Sum
from covey.aggregate.step import Adam
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.models.bert4rec import BERT4Rec
from covey.models.gru import GRU
from covey.models.sasrec import SASRec
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.sequence import CrossEntropy, MaskedItem, SampledSoftmax
from covey.solvers import Local
from covey.testing import Conformance

ONE_GRADIENT = Local("sgd", 1.0, epochs=1)
STEPS = Local("sgd", 0.1, epochs=2)


class TestSASRec(Conformance):
    """Sampled softmax, several steps, so that every client has weights of its own."""

    def method(self, catalogue: Catalogue) -> Method:
        model = SASRec(dim=8, heads=2, last=12)
        return Method(model, SampledSoftmax(negatives=8, last=12), catalogue, STEPS, combine=Mean())


class TestSASRecOneGradient(Conformance):
    """Cross-entropy over all items, the sum of one gradient each."""

    def method(self, catalogue: Catalogue) -> Method:
        model = SASRec(dim=8, last=12)
        return Method(
            model,
            CrossEntropy(last=12),
            catalogue,
            ONE_GRADIENT,
            combine=Sum(),
            server_step=Adam(0.01),
        )


class TestBERT4Rec(Conformance):
    """Hidden items among all, several steps."""

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            BERT4Rec(dim=8, last=12), MaskedItem(last=12), catalogue, STEPS, combine=Mean()
        )


class TestBERT4RecEq1(Conformance):
    """Hidden items in Eq. 1 of FedCL, one gradient."""

    def method(self, catalogue: Catalogue) -> Method:
        objective = NextItemSoftmax(stored=12, local=3, in_batch=True, last=12, hide=0.4)
        model = BERT4Rec(dim=8, last=12)
        return Method(
            model, objective, catalogue, ONE_GRADIENT, combine=Sum(), server_step=Adam(0.01)
        )


class TestGRU(Conformance):
    """With dropout; cross-entropy over all items, several steps."""

    def method(self, catalogue: Catalogue) -> Method:
        model = GRU(dim=8, last=12, dropout=0.2)
        return Method(
            model, CrossEntropy(last=12, reduction="mean"), catalogue, STEPS, combine=Mean()
        )
