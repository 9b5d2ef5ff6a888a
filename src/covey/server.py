"""A method and its rounds, for use from Python; they are defined in `covey.engine`."""

from covey.contract.fleet import Fleet
from covey.engine.method import Method
from covey.engine.rounds import Server, admit, enrol, run_round, start, view

__all__ = ["Fleet", "Method", "Server", "admit", "enrol", "run_round", "start", "view"]
