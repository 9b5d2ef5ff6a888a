"""A method and its rounds, for use from Python; they are defined in `covey.engine`."""

from covey.contract.fleet import Fleet as Fleet
from covey.engine.method import Method as Method
from covey.engine.rounds import Server as Server
from covey.engine.rounds import admit as admit
from covey.engine.rounds import enrol as enrol
from covey.engine.rounds import run_round as run_round
from covey.engine.rounds import start as start
from covey.engine.rounds import view as view
