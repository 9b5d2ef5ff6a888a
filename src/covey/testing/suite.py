"""The properties that every method has, whatever its idea. A test class inherits them and names the method."""

import dataclasses
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.contract.attack import Attack
from covey.core import toml_writer
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.engine.method import Method
from covey.run import checkpoint
from covey.run.config.build import STRUCTURE, part_of

from .compare import clone, expect_same, infinite
from .pure import watched, watched_program
from .world import Play, Setting, World

TOLERANCE = 1e-9  # in float64: sums in another order, nothing else


class Conformance:
    """Inherit, name the class `Test...` and override `method`.

    class TestMine(Conformance):
        def method(self, catalogue):
            return Method(MF(8), Bce(), catalogue, Local("sgd", 0.1), mechanisms=(Mine(),))

    The modules of these parts are trusted by the suite, since the test has imported them. Commands and
    `Recommender.load` have to be told: `--trust mine`, `trust=["mine"]`.
    """

    users: int = 25  # with cohorts of 8 the last round of a pass has a lone client
    items: int = 40
    rounds: int = 5  # more than one pass
    cohort: int = 8
    attackers: int = 0

    def __init_subclass__(cls) -> None:
        """No neutral setting, no test of it: a skipped one would only hide those that matter."""
        test = Conformance.test_neutral_setting if cls.neutral is not Conformance.neutral else None
        cls.test_neutral_setting = test  # type: ignore[method-assign, assignment]

    def method(self, catalogue: Catalogue) -> Method:
        raise NotImplementedError("return the method to be tested")

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method] | None:
        """The method with its idea turned off, and the one it then equals bit for bit."""
        return None

    def attack(self) -> Attack | None:
        """What the last `attackers` clients do."""
        return None

    def world(self) -> World:
        return World.of(self.users, self.items, self.attackers)

    def setting(self, **options: Any) -> Setting:
        return Setting(**{"rounds": self.rounds, "cohort": self.cohort, **options})

    def play(self, **options: Any) -> Play:
        """A fresh run, before its first round."""
        world = self.world()
        return Play(
            self.method(world.catalogue), world, self.setting(**options), self.attack()
        ).begin()

    def test_together_equals_apart(self) -> None:
        """All clients side by side, and each alone with every message as bytes."""
        self._agree()

    def test_every_field_is_declared_and_counted(self) -> None:
        """Nothing travels that is not declared, and the simulation counts the bytes that the wire has."""
        both = [self.play(wire=wire).go() for wire in (False, True)]
        simulated, wire = (play.outcome()["traffic"] for play in both)
        declared = {(d.step, d.name) for d in both[0].program.disclosures()}
        for play in both:
            undeclared = set(play.fleet.meter.bytes) - declared
            if undeclared:
                raise AssertionError(f"sent but not in discloses(): {sorted(undeclared)}")
            if play.fleet.meter.dropped:
                raise AssertionError(f"honest messages were dropped: {play.fleet.meter.dropped}")
        expect_same(simulated, wire, why="the simulation counts other bytes than the wire has")
        if both[0].unaccounted() or both[1].unaccounted():
            raise AssertionError(
                f"bytes that no field took: {both[0].unaccounted()} and {both[1].unaccounted()}"
            )

    def test_chunks_do_not_matter(self) -> None:
        """The same bits however the cohort is cut."""
        self.users *= 2  # all in one round: many clients of the same size
        whole = {"cohort": self.users + self.attackers, "rounds": 2}
        usual = self.play(**whole, chunk=4096).go().outcome()
        for chunk in (3, 16, 256):
            cut = self.play(**whole, chunk=chunk).go().outcome()
            expect_same(usual, cut, why=f"other bits with chunks of {chunk} clients")

    def test_again_gives_the_same_bits(self) -> None:
        """No hidden state in a part, and no randomness but the one given."""
        play = self.play()
        first = clone(play.go().outcome())
        for seed in (1, 2):
            torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
            again = Play(play.method, play.world, play.setting, play.attack).begin().go().outcome()
            expect_same(first, again, why="the same run again gives something else")

    def test_hooks_are_pure(self) -> None:
        """Hooks return what is new and leave what they were given as it was."""
        world, attack = self.world(), self.attack()
        method = watched(self.method(world.catalogue))
        play = Play(method, world, self.setting(late=3), attack, watched_program).begin()
        for _ in range(self.rounds):
            server, data = clone(play.server), clone(play.world)
            given = play.server
            play.go(1)
            expect_same(server, given, why="a round changed the server's record in place")
            expect_same(data, play.world, why="a round changed the clients' data")

    def test_drop_outs(self) -> None:
        """Clients that vanish before the report or the training are left as they were, and the rest goes on."""
        play = self.play(lost=_some)
        for number in range(1, self.rounds + 1):
            before = [clone(play.kept(c)) for c in range(len(play.world.data.training.items))]
            play.go(1)
            keeps = (
                ("report",) if not any(m.max_reports() for m in play.method.mechanisms) else ()
            )  # nothing in these
            acted = {
                c
                for (r, step), ids in play.heard.asked.items()
                if r == number and step not in keeps
                for c in ids
            }
            for client, kept in enumerate(before):
                if client not in acted:
                    expect_same(
                        kept,
                        play.kept(client),
                        why=f"client {client} was away, yet what it keeps has changed",
                    )
        self._finite(play)
        play.heard.lost = _all
        self._finite(play.go(1))
        self._agree(lost=_some, rounds=3)

    def test_late_joiners(self) -> None:
        """Clients that are admitted half-way take part and are served."""
        self._agree(late=6)
        play = self.play(late=6).go()
        self._finite(play)
        if len(play.fleet.ids_N) != self.users + self.attackers:
            raise AssertionError("the late joiners are not there")

    def test_saves_and_loads(self, tmp_path: Path) -> None:
        """Stopped, written to disk and continued by a fresh process: the same bits as without a stop."""
        whole = self.play(late=3).go().outcome()
        stopped, fresh = self.play(late=3).go(self.rounds - 2), self.play(late=3)
        file = tmp_path / "checkpoint.safetensors"
        checkpoint.Checkpoint(stopped.server, stopped.fleet.state(), {"round": stopped.round}).save(
            file
        )
        saved = checkpoint.load(file)
        fresh.fleet.load(saved.fleet)
        fresh.server, fresh.round = saved.server, saved.progress["round"]
        expect_same(
            whole,
            fresh.go().outcome(),
            why="a run that was stopped and continued gives something else",
        )

    def test_neutral_setting(self) -> None:
        """With its idea turned off a method is the one it builds on."""
        world = self.world()
        pair = self.neutral(world.catalogue)
        assert pair is not None
        off, base = (Play(method, world, self.setting()).begin().go().outcome() for method in pair)
        for part in ("public", "kept", "metrics"):
            expect_same(off[part], base[part], why=f"turned off, yet {part} differs from the base")

    def test_options_round_trip(self) -> None:
        """Every part is a frozen dataclass that a config file can describe completely."""
        method = self.method(self.world().catalogue)
        parts = [method.model, method.objective, method.solver, *method.mechanisms]
        for part in [*parts, method.grouping, method.combine, method.server_step, self.attack()]:
            if part is not None:
                _round_trip(part)

    def _agree(self, **options: Any) -> None:
        together, apart = (
            self.play(wire=wire, dtype=torch.float64, **options).go() for wire in (False, True)
        )
        expect_same(
            together.outcome(), apart.outcome(), TOLERANCE, "together is not the same as apart"
        )

    def _finite(self, play: Play) -> None:
        found = [*infinite({"public": play.server.public, "memory": play.server.state})]
        found += [
            path
            for c in range(len(play.world.data.training.items))
            for path in infinite(play.kept(c), f"{c}")
        ]
        held = play.world.data.held
        assert held is not None
        some = held.test.lengths[play.honest()] > 0
        found += [
            k
            for k, v in play.evaluate().items()
            if k.startswith("test/") and bool(v[some].isnan().any())
        ]
        if found:
            raise AssertionError(f"not finite: {found}")


def _some(step: str, round: int, ids_C: Tensor) -> Tensor:
    if step == "report":
        return (ids_C + round) % 3 == 0
    return (
        (ids_C + round) % 4 == 0 if step == "train" else torch.zeros_like(ids_C, dtype=torch.bool)
    )


def _all(step: str, round: int, ids_C: Tensor) -> Tensor:
    return torch.full_like(ids_C, step == "train", dtype=torch.bool)


def _round_trip(part: Any) -> None:
    name = type(part).__name__
    if not dataclasses.is_dataclass(part) or not getattr(type(part), "__dataclass_params__").frozen:  # noqa: B009
        raise AssertionError(f"{name} is no frozen dataclass")
    options = {
        f.name: getattr(part, f.name)
        for f in dataclasses.fields(part)
        if f.init and f.name not in STRUCTURE
    }
    section = {"use": f"{type(part).__module__}:{type(part).__qualname__}", **_plain(options)}
    try:
        again = part_of(tomllib.loads(toml_writer.dumps(section)), trust=[type(part).__module__])
    except (tomllib.TOMLDecodeError, CoveyError) as error:
        raise AssertionError(
            f"{name} cannot be written to a config file and read back: {error}"
        ) from error
    if again != part:
        raise AssertionError(f"{name}: {again} was read back where {part} was written")


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, tuple | list | frozenset) else x
