"""What a client's messages disclose, as a program declares it to the privacy ledger."""

from collections.abc import Iterator
from dataclasses import replace

from covey.contract.ledger import INFINITE, Disclosure
from covey.contract.mechanism import Mechanism, Mechanisms
from covey.contract.model import Model
from covey.core.fixed_point import PARAMETER
from covey.evaluate.exposure import NAMES as EXPOSURE
from covey.evaluate.metrics import EvaluateConfig

IN_SUM = "the server reads the sum over the round's clients only"
ENCRYPTED = "the server reads ciphertexts only, which any client can decrypt"


def upload_disclosures(
    model: Model, mechanisms: Mechanisms, hidden: frozenset[str]
) -> list[Disclosure]:
    """The parameters in an upload as mechanisms protect them; `hidden` steps leave in sums."""
    moved = "the client's own training moves it"
    clear = moved if "train" in hidden else f"{moved}; nothing protects it"
    names = [(f"update/{k}", f"update of {k}") for k in model.shared]
    names += [(f"model/{k}", f"the client's {k}") for k in model.uploaded]
    found = [Disclosure("train", k, f"{what}: {clear}", largest=PARAMETER) for k, what in names]
    for m in mechanisms:
        pairs = [(d, after) for d in found for after in m.protected_disclosures(d, model)]
        found = [after if after == d else _simulated(after, m) for d, after in pairs]
    return found


def metric_disclosures(config: EvaluateConfig) -> Iterator[Disclosure]:
    """The metrics of a client, which are sent for evaluation only."""
    names = [f"{part}/{name}" for part in ("valid", "test") for name in config.metrics]
    names += [f"target/{item}/{name}" for item in config.targets for name in EXPOSURE]
    for name in names:
        what = "how well the client is served; for the study"
        yield Disclosure("evaluate", f"evaluate/{name}", what)


def message_disclosures(mechanism: Mechanism, hidden: frozenset[str]) -> Iterator[Disclosure]:
    """A mechanism's own fields; a promise about sums holds in `hidden` steps only."""
    for d in mechanism.disclosures():
        if d.of_sum and d.step not in hidden:
            what = f"{d.what}; here it leaves in clear, without any protection: set fleet.secure"
            d = Disclosure(d.step, d.name, what, of_sum=True, largest=d.largest)
        yield _simulated(d, mechanism)


def _simulated(d: Disclosure, by: Mechanism) -> Disclosure:
    """Marks noise that comes from the run's seed and not from the device."""
    return replace(d, simulated=d.epsilon < INFINITE and not by.uses_device_noise)
