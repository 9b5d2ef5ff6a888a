"""Held-out items reach only the evaluation of devices, unless a preset leaks them as negatives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.data import Dataset
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.rounds import Server, enrol, run_round, start
from covey.objectives.pairs import Bce
from covey.run.assemble import Prepared, clients_of, local_data, method_of, prepare
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import Tree, assign, merge
from covey.run.schedule import cohort

FEDERATED = [name for name in shipped("methods") if "pooled" not in read("methods", name)]
TINY = ["data.users=40", "data.items=60", "data.mean_items=8", "run.rounds=2"]
OWN = {"cofedrec": ["model.dim=4", "grouping.categories=4"], "spectral": ["model.rank=8"]}
OWN |= {"spectral-private": ["model.rank=8"], "popularity-private": [], "ease-sums": []}
OWN |= {"pdc-frs-titles": ["model.dim=4", "mechanism.0.similarity=words"]}  # without the extra
SPLITS = ["loo-full", "ratio-full", "temporal-full"]


def config_of(name: str, preset: str, *changes: str) -> Config:
    tree: Tree = merge(read("methods", name), read("presets", preset))
    return Config.of(assign(tree, [*TINY, *OWN.get(name, ["model.dim=4"]), *changes]))


def sets(lists: Ragged) -> list[set[int]]:
    return [set(part.tolist()) for part in lists.values.split(lists.lengths.tolist())]


@pytest.mark.parametrize("preset", SPLITS)
def test_training_never_holds_what_is_held_out(preset: str) -> None:
    config = config_of("fedmf", preset)
    prepared = prepare(config)
    data = local_data(prepared, 0, torch.device("cpu"))
    assert data.held is not None
    train, valid, test = (sets(x) for x in (data.training.items, data.held.valid, data.held.test))
    assert sum(map(len, test)) > 0
    for own, *held in zip(train, valid, test, strict=True):
        assert own.isdisjoint(held[0] | held[1])
        assert held[0].isdisjoint(held[1])
    rows = prepared.dataset
    everything = [set(rows.item_E[rows.user_E == user].tolist()) for user in range(rows.n_users)]
    assert [a | b | c for a, b, c in zip(train, valid, test, strict=True)] == everything


def test_the_server_knows_the_popularity_in_training_alone() -> None:
    prepared = prepare(config_of("fedmf", "ratio-full"))
    popularity_I = prepared.catalogue.popularity_I
    assert popularity_I is not None
    assert popularity_I.sum() == len(prepared.split.train.values) < len(prepared.dataset)


@pytest.mark.parametrize("preset", SPLITS)
def test_pools_differ_by_the_held_out_items(preset: str) -> None:
    honest, leaky = (
        prepare(config_of("fedmf", preset, f"negatives.pool={pool}")) for pool in ("train", "all")
    )
    split = honest.split
    train, valid, test = (sets(x) for x in (split.train, split.valid, split.test))
    assert sets(honest.avoid) == train
    assert sets(leaky.avoid) == [a | b | c for a, b, c in zip(train, valid, test, strict=True)]
    for avoid in (honest.avoid, leaky.avoid):
        assert all(
            part.tolist() == sorted(set(part.tolist()))
            for part in avoid.values.split(avoid.lengths.tolist())
        )


def drawn(prepared: Prepared) -> list[set[int]]:
    """The negatives that each client meets in 200 rounds."""
    split, ids_N = prepared.split, torch.arange(prepared.split.n_users)
    seen: list[set[int]] = [set() for _ in range(split.n_users)]
    for number in range(200):
        made = Bce().examples(split.train, prepared.avoid, split.n_items, Rng.of(0, number, ids_N))
        chosen = made.keep((made.label == 0) & (made.weight > 0))
        seen = [a | b for a, b in zip(seen, sets(chosen.items), strict=True)]
    return seen


def test_negatives_come_from_the_whole_pool() -> None:
    """The published pool leaks held-out items, since a client never gets them as negatives."""
    for pool in ("train", "all"):
        prepared = prepare(config_of("fedmf", "loo-full", f"negatives.pool={pool}"))
        outside = [set(range(60)) - avoided for avoided in sets(prepared.avoid)]
        met = drawn(prepared)
        assert met == outside
        held = [
            a | b
            for a, b in zip(sets(prepared.split.valid), sets(prepared.split.test), strict=True)
        ]
        assert any(h & m for h, m in zip(held, met, strict=True)) == (pool == "train")


def trained(config: Config, prepared: Prepared) -> tuple[Server, SimulatedFleet]:
    method = method_of(config, prepared.catalogue)
    fleet = SimulatedFleet.of(clients_of(config, prepared, method))
    server = enrol(start(method), fleet, method)
    for number in (1, 2):
        server, _ = run_round(server, fleet, method, cohort(config, fleet.ids_N, number))
    return server, fleet


@pytest.mark.parametrize("name", FEDERATED)
def test_what_is_held_out_changes_nothing(name: str) -> None:
    """Other held-out items, the same bits in the model and on every device."""
    config = config_of(name, "loo-full")
    prepared = prepare(config)
    split = prepared.split
    other = replace(
        split,
        test=split.test.like(split.test.values.flip(0)),
        valid=split.valid.like(split.valid.values * 0),
    )
    (one, mine), (two, theirs) = (
        trained(config, replace(prepared, split=s)) for s in (split, other)
    )
    every_N = torch.arange(mine.n_all)
    kept = mine.store.state(every_N), theirs.store.state(every_N)
    for a, b in ((one.public, two.public), kept):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[k], b[k]) for k in a)


def test_the_published_pool_does_change_something() -> None:
    """The same comparison finds the leak where there is one."""
    honest, leaky = (
        config_of("fedmf", "loo-full", f"negatives.pool={pool}") for pool in ("train", "all")
    )
    one, two = (trained(c, prepare(c))[0].public["items"] for c in (honest, leaky))
    assert not torch.equal(one, two)


def test_attackers_stand_behind_with_nothing() -> None:
    prepared = prepare(config_of("fedmf", "pfedrec-honest", "data.items=300"))
    data = local_data(prepared, 3, torch.device("cpu"))
    assert data.held is not None
    assert len(data.training.items) == 43
    lists = (data.training.items, data.training.avoid, data.held.valid, data.held.test)
    assert all(x.lengths[-3:].tolist() == [0, 0, 0] for x in lists)
    assert {k: tuple(v.shape) for k, v in data.held.candidates.items()} == {
        "valid": (43, 99),
        "test": (43, 99),
    }


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    user_E, item_E = (
        np.repeat(np.arange(3), 4).astype(np.int32),
        np.tile(np.arange(4), 3).astype(np.int32),
    )
    path = tmp_path / "mine.npz"
    config = config_of("fedmf", "loo-full", f"data.name={path}")
    Dataset("mine", 3, 4, user_E, item_E).save(path)
    first = prepare(config)
    assert prepare(config).dataset is first.dataset
    Dataset("mine", 3, 5, user_E, item_E + 1).save(path)
    assert prepare(config).split.n_items == 5
