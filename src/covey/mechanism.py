"""The names that the author of a mechanism imports; they are defined in `covey.contract`."""

from covey.contract.aggregation import Combine as Combine
from covey.contract.aggregation import Group as Group
from covey.contract.aggregation import Grouping as Grouping
from covey.contract.aggregation import ServerStep as ServerStep
from covey.contract.examples import Batch as Batch
from covey.contract.examples import Examples as Examples
from covey.contract.ledger import Disclosure as Disclosure
from covey.contract.mechanism import Mechanism as Mechanism
from covey.contract.mechanism import no_clients as no_clients
from covey.contract.model import History as History
from covey.contract.model import Model as Model
from covey.contract.model import rows as rows
from covey.contract.objective import Objective as Objective
from covey.contract.views import ClientView as ClientView
from covey.contract.views import Reads as Reads
from covey.contract.views import ServerView as ServerView
from covey.contract.views import TrainingData as TrainingData
