"""The conformance suite: properties that every method has, as tests to inherit."""

import dataclasses
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.contract.attack import Attack
from covey.core import Catalogue, CoveyError, toml_writer
from covey.engine.method import Method
from covey.run import checkpoint
from covey.run.config.build import STRUCTURE, part_of

from .compare import clone, expect_same, infinite, watched, watched_program
from .world import Play, Setting, World, no_drop_outs

TOLERANCE = 1e-9  # in float64: sums in another order, nothing else


class Conformance:
    """Inherit, name the class `Test...` and override `method`.

    class TestMine(Conformance):
        def method(self, catalogue):
            return Method(MF(8), Bce(), catalogue, Local("sgd", 0.1), mechanisms=(Mine(),))

    The suite trusts the modules of these parts, since the test has imported them. Commands and
    `Recommender.load` need their names: `--trust mine`, `trust=["mine"]`.
    """

    users: int = 25  # with cohorts of 8 the last round of a pass has a lone client
    items: int = 40
    rounds: int = 5  # more than one pass
    cohort: int = 8
    attackers: int = 0

    def __init_subclass__(cls) -> None:
        """Removes the test of a neutral setting if there is none, instead of skipping it."""
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
        method, setting = self.method(world.catalogue), self.setting(**options)
        return Play(method, world, setting, self.attack()).begin()

    def test_together_equals_apart(self) -> None:
        """A batch of clients equals each client alone with every message as bytes."""
        self._agree()

    def test_every_field_is_declared_and_counted(self) -> None:
        """Every field is declared, and the simulation counts as many bytes as the wire has."""
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
        if any(extra := [play.unaccounted() for play in both]):
            raise AssertionError(f"bytes that no field took: {extra[0]} and {extra[1]}")

    def test_chunks_do_not_matter(self) -> None:
        """The result has the same bits for chunks of any size."""
        self.users *= 2  # all in one round: many clients of the same size
        whole = {"cohort": self.users + self.attackers, "rounds": 2}
        usual = self.play(**whole, chunk=4096).go().outcome()
        for chunk in (3, 16, 256):
            cut = self.play(**whole, chunk=chunk).go().outcome()
            expect_same(usual, cut, why=f"other bits with chunks of {chunk} clients")

    def test_again_gives_the_same_bits(self) -> None:
        """Parts have no hidden state and no randomness but the one given."""
        play = self.play()
        first = clone(play.go().outcome())
        for seed in (1, 2):
            torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
            again = Play(play.method, play.world, play.setting, play.attack).begin().go().outcome()
            expect_same(first, again, why="the same run again gives something else")

    def test_hooks_are_pure(self) -> None:
        """Hooks return what is new and do not change their arguments."""
        world, attack = self.world(), self.attack()
        method = watched(self.method(world.catalogue))
        play = Play(method, world, self.setting(late=3), attack, watched_program).begin()
        for _ in range(self.rounds):
            server, before, data = play.server, clone(play.server), clone(play.world)
            play.go(1)
            expect_same(before, server, why="a round changed the server's record in place")
            expect_same(data, play.world, why="a round changed the clients' data")

    def test_drop_outs(self) -> None:
        """Clients that drop out before the report or the training do not change; others go on."""
        play = self.play(lost=_some)
        counts = any(m.max_reports() for m in play.method.mechanisms)
        harmless = () if counts else ("report",)  # steps that change nothing that a client keeps
        for number in range(1, self.rounds + 1):
            before = [clone(play.kept(c)) for c in range(len(play.world.data.training.items))]
            play.go(1)
            asked = play.server_side.asked.items()
            acted = [ids for (r, step), ids in asked if r == number and step not in harmless]
            for client, kept in enumerate(before):
                if not any(client in ids for ids in acted):
                    why = f"client {client} was away, yet what it keeps has changed"
                    expect_same(kept, play.kept(client), why=why)
        self._finite(play)
        play.server_side.lost = _all
        self._finite(play.go(1))
        self._agree(lost=_some, rounds=3)

    def test_late_joiners(self) -> None:
        """Clients that join half-way take part and get recommendations."""
        self._agree(late=6)
        play = self.play(late=6).go()
        self._finite(play)
        if len(play.fleet.ids_N) != self.users + self.attackers:
            raise AssertionError("the late joiners are not there")

    def test_saves_and_loads(self, tmp_path: Path) -> None:
        """A run that is stopped, saved and continued has the same bits as one without a stop."""
        whole = self.play(late=3).go().outcome()
        stopped, fresh = self.play(late=3).go(self.rounds - 2), self.play(late=3)
        progress = {"round": stopped.round}
        checkpoint.save_run(tmp_path, stopped.server, stopped.fleet, progress, {})
        saved = checkpoint.load(tmp_path / checkpoint.CHECKPOINT)
        checkpoint.restore(fresh.fleet, saved, tmp_path)
        fresh.server, fresh.round = saved.server, saved.progress["round"]
        why = "a run that was stopped and continued gives something else"
        expect_same(whole, fresh.go().outcome(), why=why)

    def test_neutral_setting(self) -> None:
        """With its idea turned off, a method equals the one that it extends."""
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
        plays = (self.play(wire=wire, dtype=torch.float64, **options) for wire in (False, True))
        together, apart = (play.go().outcome() for play in plays)
        expect_same(together, apart, TOLERANCE, "together is not the same as apart")

    def _finite(self, play: Play) -> None:
        found = [*infinite({"public": play.server.public, "memory": play.server.state})]
        for client in range(len(play.world.data.training.items)):
            found += infinite(play.kept(client), f"{client}")
        held = play.world.data.held
        assert held is not None
        some = held.test.lengths[play.honest()] > 0
        test = {k: v[some] for k, v in play.evaluate().items() if k.startswith("test/")}
        found += [k for k, v in test.items() if bool(v.isnan().any())]
        if found:
            raise AssertionError(f"not finite: {found}")


def _some(step: str, round: int, ids_C: Tensor) -> Tensor:
    every = {"report": 3, "train": 4}.get(step)
    return (ids_C + round) % every == 0 if every else no_drop_outs(step, round, ids_C)


def _all(step: str, round: int, ids_C: Tensor) -> Tensor:
    return torch.full_like(ids_C, step == "train", dtype=torch.bool)


def _round_trip(part: Any) -> None:
    cls: Any = type(part)
    name = cls.__name__
    if not dataclasses.is_dataclass(part) or not cls.__dataclass_params__.frozen:
        raise AssertionError(f"{name} is no frozen dataclass")
    names = (f.name for f in dataclasses.fields(part) if f.init and f.name not in STRUCTURE)
    options = {name: getattr(part, name) for name in names}
    section = {"use": f"{cls.__module__}:{cls.__qualname__}", **_plain(options)}
    try:
        again = part_of(tomllib.loads(toml_writer.dumps(section)), trust=[cls.__module__])
    except (tomllib.TOMLDecodeError, CoveyError) as error:
        message = f"{name} cannot be written to a config file and read back: {error}"
        raise AssertionError(message) from error
    if again != part:
        raise AssertionError(f"{name}: {again} was read back where {part} was written")


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return [_plain(v) for v in x] if isinstance(x, tuple | list | frozenset) else x
