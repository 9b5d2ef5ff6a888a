"""What `covey tune` may set, and which values it tries."""

import math
from typing import Any

import pytest

from covey.core.errors import CoveyError
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.study.tuning.search import STARTUP, suggest
from covey.study.tuning.space import Choices, Range, check, declared, space_of
from covey.study.tuning.trial import Run, Trial
from searches import plan_of

pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("log 0.001 1", Range(0.001, 1.0, log=True, whole=False)),
        ("linear 0 0.5", Range(0.0, 0.5, log=False, whole=False)),
        ("int log 8 256", Range(8, 256, log=True, whole=True)),
        ("int linear 0 3", Range(0, 3, log=False, whole=True)),
        ("choice 0.0 1e-5 adam true [4,2]", Choices((0.0, 1e-5, "adam", True, [4, 2]))),
    ],
)
def test_declarations(text: str, axis: Any) -> None:
    assert declared(text, "a.b") == axis
    assert all(axis.holds(value) for value in axis.ends())


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "log",
            "log 1",
            "log 1 2 3",
            "log 2 1",
            "log 0 1",
            "log a b",
            "int log 0.5 2",
            "int choice 1 2",
        ),
        *("choice", "uniform 0 1", "linear 0 inf", "linear 0 nan", "linear 1 1", 3, ["log", 1, 2]),
    ],
)
def test_bad_declarations(text: Any) -> None:
    with pytest.raises(CoveyError, match=r"the space of a\.b"):
        declared(text, "a.b")


def test_values_have_few_digits_and_stay_inside() -> None:
    axis = Range(0.123456, 0.987654, log=False, whole=False)
    assert axis.clean(0.5555555) == 0.5556
    assert axis.clean(0.123456) == 0.1235
    assert Range(0.123444, 1, log=False, whole=False).clean(0.123444) == 0.123444
    assert axis.clean(0.987653) == 0.987654  # rounded, they would be outside


@pytest.mark.parametrize("method", shipped("spaces"))
def test_shipped_spaces_fit_their_method_and_hold_the_published_setting(method: str) -> None:
    space, _ = space_of(method)
    published = check(read("methods", method), space)
    assert 1 <= len(space) <= 4
    for option, axis in space.items():  # a list is of values that the method itself chooses from
        value = published[option]
        assert all(map(axis.holds, value if isinstance(value, list) else [value])), published


def test_shipped_spaces_leave_the_amount_of_work_alone() -> None:
    work = ("epochs", "batch", "negatives", "rounds", "cohort")
    assert not [
        o for m in shipped("spaces") for o in space_of(m)[0] if o.rpartition(".")[2] in work
    ]


def test_suggestions_are_a_pure_function_and_inside_the_space() -> None:
    plan = plan_of(space=("solver.epochs=int log 1 9", "solver.optimizer=choice sgd adam"))
    done = [Trial(0, plan.published, (Run(0.1),))]
    for n in range(1, 12):
        (values,) = suggest(plan.space, plan.published, done, [n], 0).values()
        assert suggest(plan.space, plan.published, done, [n], 0) == {n: values}
        assert all(axis.holds(values[o]) for o, axis in plan.space.items())
        assert isinstance(values["solver.epochs"], int) and values["solver.optimizer"] in (
            "sgd",
            "adam",
        )
        Config.of(plan.configs(n, values)[0].tree)
        done.append(
            Trial(n, values, (Run(error="diverged"),) if n == 3 else (Run(values["solver.lr"]),))
        )
    assert suggest(plan.space, plan.published, [], [1], 0) != suggest(
        plan.space, plan.published, [], [1], 1
    )


def test_the_first_trials_are_spread() -> None:
    """Each third of a range has one of eight trials, whatever the seed, and so has each choice."""
    space = {
        "a": declared("log 0.001 1", "a"),
        "b": declared("choice x y", "b"),
        "c": declared("int linear 0 2", "c"),
    }
    for seed in range(20):
        made = list(suggest(space, {}, [], range(1, 9), seed).values())
        assert {int(math.log10(v["a"]) // 1) for v in made} == {-3, -2, -1}
        assert {v["b"] for v in made} == {"x", "y"} and {v["c"] for v in made} == {0, 1, 2}


def test_shares_of_a_range() -> None:
    log, whole = declared("log 0.01 1", "a"), declared("int log 1 7", "a")
    assert log.at(0) == 0.01 and log.at(0.5) == 0.1 and log.at(0.999999) == 1.0
    assert whole.at(0) == 1 and whole.at(0.9999) == 7 and whole.at(1 / 3 + 1e-9) == 2
    assert declared("linear -1 1", "a").at(0.25) == -0.5


def test_suggestions_learn_from_what_was_found() -> None:
    """On two options with a known best: later trials are better than those at random."""
    plan, early, late = plan_of(), [], []
    for seed in range(4):
        done: list[Trial] = []
        for n in range(16):
            values = suggest(plan.space, plan.published, done, [n], seed)[n]
            value = (
                1
                - (math.log10(values["solver.lr"]) + 1) ** 2
                - 0.3 * (math.log10(values["model.scale"]) + 0.5) ** 2
            )
            done.append(Trial(n, values, (Run(value),)))
        early += [t.value for t in done[1:STARTUP]]
        late += [t.value for t in done[8:]]
    assert sum(late) / len(late) > sum(early) / len(early) + 0.2
