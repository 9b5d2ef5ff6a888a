"""PDC-FRS beside the mechanisms of other papers: each combination inherits the whole suite."""

import pytest

from covey.aggregate.combine import Sum
from covey.aggregate.step import Adam
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.methods.cl4fedrec import Contrast, PopularityRegulariser
from covey.methods.fedcl import HardNegatives
from covey.methods.pdc_frs import DataContribution
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

MINE = DataContribution(similarity="itself", count=5, aux_epochs=1, aux_lr=0.01, aux_batch=64)


class TestWithCL4FedRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        theirs = (Contrast(users=6, history=5), PopularityRegulariser(hot=5, sample=10, steps=2))
        model, solver = NCF(4, (4, 3), scale=0.1), Local("adam", 0.01, epochs=2)
        return Method(model, Bce(), catalogue, solver, (*theirs, MINE))


class TestWithFedCL(Conformance):
    """Hard negatives are examples, and one that the auxiliary model recommends is dropped."""

    def method(self, catalogue: Catalogue) -> Method:
        theirs = HardNegatives(clusters=3, count=4)
        model, solver = NCF(4, (4, 3), scale=0.1), Local("adam", 0.01, epochs=2)
        return Method(model, Bce(), catalogue, solver, (theirs, MINE))


@pytest.mark.slow
class TestContrastWithFedCLAsPublished(Conformance):
    """A softmax over positions takes no scored items: the contrast, one gradient, server Adam."""

    def method(self, catalogue: Catalogue) -> Method:
        mine = DataContribution(
            contribute="clean", length=6, count=0, aux_epochs=1, against="some", others=4
        )
        solver = Local("sgd", 1.0, epochs=1, rates={"user": 0.1})
        theirs, objective = HardNegatives(clusters=3, count=4), NextItemSoftmax(stored=10, local=3)
        return Method(
            MF(4),
            objective,
            catalogue,
            solver,
            (theirs, mine),
            combine=Sum(),
            server_step=Adam(0.01),
        )
