"""Every method that comes with covey, through the suite that every method inherits."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from covey.aggregate.combine import ItemMean, Mean
from covey.aggregate.grouping import Nobody
from covey.aggregate.step import Adam
from covey.contract.aggregation import Combine, Grouping
from covey.contract.mechanism import Mechanism
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance


class TestFedMF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, epochs=2), combine=ItemMean())


class TestFedMFMean(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        solver = Local("sgd", 0.5, epochs=1, batch=16)
        return Method(MF(4), Bce(), catalogue, solver, combine=Mean(), weighting="examples")


class TestFedNCF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(NCF(4, (4, 3)), Bce(), catalogue, Local("adam", 0.01, epochs=2))


class TestFedNCFMiniBatch(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            NCF(4, (4, 3)), Bce(), catalogue, Local("adam", 0.01, epochs=2, batch=16, state="kept")
        )


class TestPFedRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        phases = (("score", "bias"), ("items",))
        solver = Local("sgd", 0.1, 1, 16, phases, rates={"items": 0.2}, per_item=("items",))
        return Method(LinearScore(4), Bce(saturating=True), catalogue, solver, combine=Mean())


class TestLocal(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        model = LinearScore(4, keep_items=True, upload_items=False)
        return Method(model, Bce(), catalogue, Local("sgd", 0.1, epochs=2), grouping=Nobody())


class TestFedSGD(Conformance):
    """One gradient per client, its sum to the server's Adam."""

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            MF(4),
            Bce(reduction="sum"),
            catalogue,
            Local("sgd", 1.0, epochs=1),
            server_step=Adam(0.01),
        )


TESTS = Path(__file__).parent
FOLDERS = ("methods", "attacks", "defenses", "privacy")
SOURCE = TESTS.parent / "src" / "covey"
MODULES = sorted(
    p.relative_to(SOURCE).with_suffix("") for f in FOLDERS for p in (SOURCE / f).glob("*.py")
)


def has_parts(module: Path) -> bool:
    """Whether a file defines a class that a configuration can name and that is used in a round."""
    inside = import_module(f"covey.{'.'.join(module.parts)}")
    classes = [
        c for _, c in inspect.getmembers(inside, inspect.isclass) if c.__module__ == inside.__name__
    ]
    parts = [c for c in classes if "__dataclass_fields__" in vars(c)]
    return any(issubclass(c, Mechanism | Grouping | Combine) or hasattr(c, "poison") for c in parts)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_method_attack_and_defence_is_in_the_suite(module: Path) -> None:
    if has_parts(module):
        name = f"covey.{module.as_posix().replace('/', '.')} import"
        tests = [file.read_text() for file in (TESTS / module.parent).glob("test_*.py")]
        assert any("Conformance)" in text and name in text for text in tests), (
            f"no conformance test names {module}"
        )
