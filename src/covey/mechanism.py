"""The names that the author of a mechanism imports; they are defined in `covey.contract`."""

from covey.contract.aggregation import Combine, Group, Grouping, ServerStep
from covey.contract.examples import Batch, Examples
from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism, no_clients
from covey.contract.model import History, Model, rows
from covey.contract.objective import Objective
from covey.contract.views import ClientView, Reads, ServerView, TrainingData

__all__ = ["Batch", "ClientView", "Combine", "Disclosure", "Examples", "Group", "Grouping"]
__all__ += ["History", "Mechanism", "Model", "Objective", "Reads", "ServerStep", "ServerView"]
__all__ += ["TrainingData", "no_clients", "rows"]
