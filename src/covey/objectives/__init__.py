"""What a client learns: the examples that it makes of its list, and a loss; one file per family."""

from covey.contract.model import NO_HISTORY as NO_HISTORY
from covey.contract.objective import Objective as Objective

from .graph import GraphBce as GraphBce
from .next_item import HIDE_LAST as HIDE_LAST
from .next_item import NextItemSoftmax as NextItemSoftmax
from .pairs import Bce as Bce
from .pairs import Bpr as Bpr
from .pairs import NoObjective as NoObjective
from .pairs import positives_and_negatives as positives_and_negatives
