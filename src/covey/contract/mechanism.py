"""A mechanism is one idea of one paper: a frozen dataclass of hyperparameters with hooks.

A researcher subclasses `Mechanism` and overrides the hooks that the idea needs. Hooks are pure
functions. A client hook receives a `ClientView`, a server hook a `ServerView`, and nothing else, so
a mechanism cannot reach the state of another mechanism, another client, or across the wire.

The order of the hooks in a round, with the hooks of the server on the left:

    begin_round, select_cohort
    select_reporters, send  --->  report                     (if "report" is in `exchanges`)
    receive_reports         <---
    send                    --->  renew, augment, precompute, prepare,
                                  loss (once per local step),
    filter_uploads          <---  protect_upload
    receive_uploads, adjust_update, adjust_model
    end_round, hand_out

Before the first round clients `enrol` (if "enrol" is in `exchanges`); then the server calls
`init_state` and `hand_out`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from covey.core import Answers, Extra, FieldDict, Fields, Sent, Upload

from .examples import Examples
from .ledger import Disclosure
from .model import Model
from .views import ClientView, Reads, ServerView


class ClientHooks:
    """What a mechanism does on the clients; every hook handles a cohort of C clients at once."""

    def enrol(self, view: ClientView) -> FieldDict:
        """Returns what a client sends once, when it joins: fields with one entry per client.

        Such a field is a tensor [C, ...] or a `Ragged` of C lists. Called in round 0, and for late
        joiners in the round in which they join, if "enrol" is in `exchanges`. `view.params` holds
        the client's first parameters.
        """
        return {}

    def report(self, view: ClientView) -> FieldDict:
        """Returns what a client sends before training: fields with one entry per client.

        Called once per round for the clients that `select_reporters` chose, if "report" is in
        `exchanges`. `view.received` is what `send` returned for the step "report".
        """
        return {}

    def max_reports(self) -> int:
        """Returns how many different reports a client makes; 0 for no limit.

        After that many, the client repeats its last report, which it keeps on the device, so that
        noise is drawn and its privacy budget is spent only this often.
        """
        return 0

    def renew(self, view: ClientView) -> Fields:
        """Returns private parameters [C, ...] that take the place of those the clients kept.

        Called once per participation, before all else in training, which starts from a shared
        parameter among them in place of the public one.
        """
        return {}

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        """Returns the examples of a round, changed or extended.

        Called once per participation, before training, with the examples of the objective.
        """
        return examples

    def precompute(self, view: ClientView) -> Sent:
        """Returns what several clients would compute alike, so that it is computed once.

        Called before training with all clients at hand; the result is added to `view.received`. It
        may change the time that `loss` takes, and nothing else.
        """
        return Sent()

    def prepare(self, view: ClientView) -> Fields:
        """Returns tensors [C, ...] that stay fixed during local training, such as masks.

        Called once per participation if the mechanism implements `loss`, which finds them in
        `view.prepared`. `view.params` holds the local rows that `view.batch` names.
        """
        return {}

    def loss(self, view: ClientView) -> Tensor | None:
        """Returns a term [C] that is added to the objective's loss and can be differentiated.

        None is no term. Called in every local step; `view.step` counts them.
        """
        return None

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        """Returns the upload as it leaves the device: clipped, with noise, or with pseudo items.

        Called once after training. Mechanisms are applied in the order of the configuration.
        """
        return upload

    def materialise(self, params: Fields) -> Fields:
        """Returns parameters that a client computes from those that it received and keeps.

        They replace parameters of the same names before a client reports, trains or ranks.
        `params` are [C or 1, ...] each, with whole tables.
        """
        return {}

    def base_model(self, params: Fields) -> tuple[Model, Fields] | None:
        """Returns another model and its parameters; its scores are added wherever a client ranks.

        `params` are the parameters that the client received, [C or 1, ...] each.
        """
        return None


class ServerHooks:
    """What a mechanism does on the server; hooks that return a `FieldDict` return its new state."""

    def init_state(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        """Returns the first state, after the enrolment; `view.round` is round 0 with all clients.

        `enrolment` is what the clients' `enrol` sent, or None if no mechanism asks for it.
        """
        return {}

    def admit_clients(self, view: ServerView, enrolment: Upload | None) -> FieldDict:
        """Returns the state with late joiners; `view.round.ids_C` are theirs."""
        return view.state

    def begin_round(self, view: ServerView) -> FieldDict:
        """Returns the state at the beginning of a round, before anything is sent."""
        return view.state

    def select_cohort(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        """Returns which of `everyone` [N] train in this round; None for the cohort of the schedule.

        That cohort is in `view.round.ids_C`, and the number of clients in it is kept.
        """
        return None

    def select_reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        """Returns which of `everyone` [N] report in this round; None for the round's cohort."""
        return None

    def receive_reports(self, view: ServerView, reports: Answers) -> tuple[FieldDict, Fields]:
        """Returns the new state, and public parameters that the reports of a round change.

        `view.round.ids_C` are the clients that answered. `reports` has one entry per client, or is
        their sum where `reads_reports` is "total".
        """
        return view.state, {}

    def send(self, view: ServerView) -> Sent:
        """Returns what goes to the clients; `view.step` is "report" or "train".

        A client hook finds it in `view.received`: the same tensors for all clients in `shared`, and
        in `each` one entry per client in the order of `view.round.ids_C`.
        """
        return Sent()

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        """Returns the uploads to aggregate; a mechanism with this hook needs single uploads."""
        return upload

    def receive_uploads(self, view: ServerView, upload: Upload) -> tuple[FieldDict, Fields]:
        """Returns the new state, and public parameters that the uploads of a round change.

        Called before the uploads are combined, if there are any. A mechanism with this hook needs
        single uploads.
        """
        return view.state, {}

    def adjust_update(self, view: ServerView, update: Fields) -> Fields:
        """Returns the aggregated update as the server's optimiser receives it, by parameter."""
        return update

    def adjust_model(self, view: ServerView, model: Fields) -> tuple[FieldDict, Fields]:
        """Returns the new state, and a model before clients receive it, by parameter."""
        return view.state, model

    def end_round(self, view: ServerView) -> FieldDict:
        """Returns the state at the end of a round.

        Single numbers under names that begin with `tell/` are metrics: they are written to the log.
        """
        return view.state

    def hand_out(self, view: ServerView, everyone: Tensor) -> tuple[Tensor, Fields]:
        """Returns ids [C] out of `everyone` [N], and values [C, ...] of parameters that they keep.

        Called when clients have joined and at the end of every round. The clients replace their
        own values of these parameters.
        """
        return no_clients(), {}


class PlanningHooks:
    """What the engine and the privacy ledger need to know about a mechanism in advance."""

    def extra_floats(self, n_rows: int) -> int:
        """Returns how many numbers per client the loss holds beyond its `n_rows` item rows."""
        return 0

    def compared_pairs(self, n_rows: int) -> int:
        """Returns how many pairs of rows a client's loss compares in a step, for plans on a GPU."""
        return 0

    def tuned_share(self) -> float:
        """Returns the weight of a client's own update of a tuned table where the client ranks."""
        return 1.0

    def disclosures(self) -> tuple[Disclosure, ...]:
        """Returns every field that the mechanism's messages contain; others may not be sent."""
        return ()

    def protected_disclosures(self, disclosed: Disclosure, model: Model) -> tuple[Disclosure, ...]:
        """Returns what a field of training, `disclosed` as it is, discloses once protected."""
        return (disclosed,)

    def chosen_options(self, told: dict[str, float]) -> dict[str, Any]:
        """Returns options that validation items chose during a run, to start again with them.

        `told` are the mechanism's metrics of the selected round.
        """
        return {}

    @property
    def uses_device_noise(self) -> bool:
        """Whether the device draws the noise, not the seed, so that it differs in a replay."""
        return getattr(self, "noise", "simulated") in ("device", "opendp")


class Mechanism(ClientHooks, ServerHooks, PlanningHooks):
    """One idea of one paper. Every hook is optional.

    Its `name` is unique within a method: the key of its fields in messages, state and results, and
    of its random streams.
    """

    name: str = "mechanism"
    listens: str = ""  # another part, whose server half sends what this client half reads
    exchanges: frozenset[str] = frozenset()  # that it needs besides training: "enrol", "report"
    reads_reports: Reads = "each"  # "total" if the sum is enough for `receive_reports`
    whole_table: bool = False  # whether the loss moves every item row: clients train whole tables
    needs_private: tuple[str, ...] = ()  # private parameters that the model must have

    def implements(self, hook: str) -> bool:
        """Whether the class overrides a hook."""
        return getattr(type(self), hook) is not getattr(Mechanism, hook)


Mechanisms = Sequence[Mechanism]


def client_views(
    mechanisms: Mechanisms, view: ClientView, extra: Extra
) -> list[tuple[Mechanism, ClientView]]:
    """The cohort as each mechanism sees it: with what was sent to it, and its random stream."""
    sent = [(m, extra.get(m.listens or m.name, Sent())) for m in mechanisms]
    return [(m, replace(view, received=s, rng=view.rng.fold(m.name))) for m, s in sent]


def unique_names(parts: Sequence[Any]) -> list[str]:
    """The names of some parts, which have to differ."""
    names = [p.name for p in parts]
    if len(names) != len(set(names)):
        raise ValueError(f"two mechanisms share a name: {sorted(names)}; give each its own `name`")
    return names


def no_clients() -> Tensor:
    """An empty tensor of client ids."""
    return torch.zeros(0, dtype=torch.long)
