"""What users would spend is planned before a run begins, as computed by hand, and a limit holds."""

from pathlib import Path
from typing import Any

import pytest

from covey.contract.ledger import Ledger
from covey.core.errors import CoveyError
from covey.run.assemble import clients_of, fleet_of, method_of, prepare
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run
from covey.run.privacy_budget import of_planned, of_sent
from covey.run.schedule import rounds_of

SMALL = [
    "data.users=30",
    "data.items=60",
    "data.mean_items=8",
    "run.cohort=10",
    "run.rounds=3",
    "run.ceilings=[]",
]
SMALL += ['run.unit="pass"']
UPLOADS = 'use="covey.privacy.uploads:NoisyUploads"'
NOISE = f'mechanism=[{{{UPLOADS}, epsilon=0.5, clip=0.1, per="upload", rows="all"}}]'


def config_of(method: str, *changes: str) -> Config:
    return Config.of(assign(read("methods", method), changes))


def planned(config: Config) -> Ledger:
    prepared = prepare(config)
    method = method_of(config, prepared.catalogue)
    people = clients_of(config, prepared, method)
    ids_N = fleet_of(config, people).ids_N
    longest = int(prepared.split.train.lengths.max())
    return of_planned(config, method, people.population, ids_N, longest)


def in_training(ledger: Ledger) -> dict[tuple[str, str], int]:
    return {key: ledger.times(key) for key in ledger.sent() if key[0] != "evaluate"}


def test_fedcl_by_hand() -> None:
    """20 passes. When a pass opens everybody reports its vector with epsilon 4: 4 x 20 = 80.

    Of 1,000 clients 256 take part in a round: 4 rounds are a pass, and everybody trains once in it.
    """
    config = config_of("fedcl")
    ledger = planned(config)
    assert rounds_of(config, 1000) == 80
    assert in_training(ledger)["report", "fedcl/user"] == 20
    assert in_training(ledger)["train", "update/items"] == 20
    owed = ledger.summary(1e-5)
    assert (owed["epsilon_report"], owed["epsilon_round"], owed["epsilon_user"]) == (4.0, 4.0, 80.0)
    assert (owed["delta_user"], owed["accountant"]) == (
        0.0,
        None,
    )  # at epsilon 4 nothing is tighter than the sum
    assert owed["unprotected"] == [
        f"train update/{k}" for k in ("items", "w_in", "w_state", "b_in", "b_state")
    ]


def test_fedcl_on_a_budget_by_hand() -> None:
    """A single report costs 4; ten reports share 4, and then repeat the last, so 4 in all."""
    once = planned(config_of("fedcl", 'mechanism.0.repeat="once"')).summary()
    shared = planned(config_of("fedcl", 'mechanism.0.repeat="budget"')).summary()
    assert once["epsilon_user"] == 4.0
    assert shared["epsilon_user"] == pytest.approx(10 * 0.4)
    assert shared["epsilon_report"] == pytest.approx(0.4)


def test_pdc_frs_by_hand() -> None:
    """A report before training costs 5 per item; the longest list has 242: 5 x 242 = 1,210."""
    config = config_of("pdc-frs")
    longest = max(
        len(x)
        for x in prepare(config).split.train.values.split(
            prepare(config).split.train.lengths.tolist()
        )
    )
    assert longest == 242
    owed = planned(config).summary()
    assert (owed["epsilon_item"], owed["epsilon_enrolment"], owed["epsilon_round"]) == (
        5.0,
        1210.0,
        0,
    )
    assert owed["epsilon_user"] == 1210.0
    assert "enrol contribution/list/length" in owed["unprotected"]
    assert "train update/items" in owed["unprotected"]


@pytest.mark.parametrize(
    ("method", "field", "times"),
    [("cl4fedrec", "update/items", 20), ("cofedrec", "model/items", 100)],
)
def test_the_others_promise_nothing(method: str, field: str, times: int) -> None:
    """CL4FedRec trains all clients in 20 passes, CoFedRec in 100 rounds; nothing is protected."""
    ledger = planned(config_of(method))
    owed = ledger.summary(1e-5)
    assert {n for (step, _), n in in_training(ledger).items() if step == "train"} == {times}
    assert owed["epsilon_user"] == 0 and owed["accountant"] is None
    assert f"train {field}" in owed["unprotected"]
    assert len(owed["unprotected"]) == len(in_training(ledger))


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedcl", []),
        ("fedcl", ['mechanism.0.repeat="round"', "mechanism.0.every=0"]),
        ("fedcl", ['mechanism.0.repeat="once"', "run.late=0.4"]),
        ("fedcl", ["mechanism.0.first=2", 'run.schedule="sample"']),
        ("pdc-frs", ["run.late=0.4"]),
        ("cofedrec", ['run.schedule="sample"']),
        ("spectral", []),
        ("fedncf", [NOISE, "run.late=0.5"]),
    ],
)
def test_the_plan_is_what_happens(method: str, changes: list[str], tmp_path: Path) -> None:
    dim = ["model.dim=4" if method != "spectral" else "model.rank=4"]
    config = config_of(method, *SMALL, *dim, *changes)
    result = run(config, tmp_path / "out")
    sent = {
        (r["step"], r["field"]): r["messages_per_user"]
        for r in result["ledger"]
        if r["step"] != "evaluate"
    }
    plan = planned(config)
    reports = {key for key in sent if key[0] == "report"}
    assert {k: v for k, v in in_training(plan).items() if k not in reports} == {
        k: v for k, v in sent.items() if k not in reports
    }
    assert plan.summary(1e-5) == result["privacy"]


@pytest.mark.parametrize(
    ("method", "changes", "told"),
    [
        ("cl4fedrec", [], ["contrast/counts"]),
        ("rcl4fedrec", [], ["contrast/counts", "popularity/counts"]),
        ("rcl4fedrec", ['mechanism.0.draw="uniform"'], ["popularity/counts"]),
        ("fedcl", ['mechanism.0.pool="popular"'], ["fedcl/counts"]),
        ("fedcl", ['mechanism.0.pool="popular"', "mechanism.0.count=0"], []),
        ("fedcl", [], []),
    ],
)
def test_exact_counts_that_a_server_is_given_are_in_the_ledger(
    method: str, changes: list[str], told: list[str], tmp_path: Path
) -> None:
    """Nobody sends them in a run; who has what is in them all the same, and nothing protects it."""
    config = config_of(method, *SMALL, "model.dim=4", *changes)
    result = run(config, tmp_path / "out")
    counts = [r for r in result["ledger"] if r["field"].endswith("/counts")]
    assert [r["field"] for r in counts] == told
    assert all((r["step"], r["epsilon_user_total"]) == ("enrol", "none") for r in counts)
    assert set(result["privacy"]["unprotected"]) >= {f"enrol {name}" for name in told}
    assert planned(config).summary(1e-5)["unprotected"] == result["privacy"]["unprotected"]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedcl", ['mechanism.0.noise="device"', 'mechanism.0.repeat="once"']),
        ("fedmf", [NOISE.replace("epsilon", 'noise="device", epsilon')]),
    ],
)
def test_a_run_with_noise_from_entropy_does_not_go_on(
    method: str, changes: list[str], tmp_path: Path
) -> None:
    """Noise since the last checkpoint would be drawn again, and two releases counted as one."""
    config, out = (
        config_of(method, *SMALL, "model.dim=4", "run.checkpoint=1", *changes),
        tmp_path / "out",
    )
    run(config, out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    with pytest.raises(
        CoveyError, match=r"cannot go on: .* draws its noise from the device's entropy.*start again"
    ):
        run(config, out, resume=True)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


LIMITED = ['privacy.unprotected="allow"']


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (
            "fedcl",
            ["privacy.max_epsilon=8", *LIMITED],
            r"a user would spend 12: report fedcl/user 4 x 3 messages = 12",
        ),
        (
            "fedcl",
            ["privacy.max_epsilon=100"],
            r"train update/items and 4 more would leave without any guarantee; add mechanism\.\+=",
        ),
        (
            "fedcl",
            ["privacy.max_epsilon=13", "privacy.spent=2", *LIMITED],
            r"would spend 12 after 2 spent before",
        ),
        ("fedcl", ["privacy.max_epsilon=2", "privacy.spent=2"], r"the budget is spent already"),
        ("fedmf", ["privacy.max_epsilon=2"], r"train update/items"),
        (
            "fedmf",
            ["privacy.max_epsilon=1.4", NOISE],
            r"1\.5: train noisy uploads 0\.5 x 3 messages = 1\.5",
        ),
        ("popularity", ["privacy.max_epsilon=2"], r"\[pooled\] collects everybody's data"),
        ("fedcl", ["privacy.max_epsilon=0"], r"max_epsilon = 0.0; it must be over 0"),
        ("fedcl", ["privacy.delta=1.0"], r"delta is from 0 to below 1"),
        ("fedcl", ["privacy.spent=-1.0"], r"spent a number of at least 0"),
        ("fedcl", ["privacy.epsilon=1.0"], r"no option 'epsilon'; did you mean"),
    ],
)
def test_a_run_that_would_spend_more_does_not_start(
    method: str, changes: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CoveyError, match=message):
        run(config_of(method, *SMALL, *changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedcl", ["privacy.max_epsilon=12", *LIMITED]),
        ("fedmf", ["privacy.max_epsilon=1.5", NOISE]),
        ("fedmf", ["privacy.max_epsilon=2", "privacy.spent=0.5", NOISE]),
    ],
)
def test_a_run_within_the_limit_starts(method: str, changes: list[str], tmp_path: Path) -> None:
    result: dict[str, Any] = run(
        config_of(method, *SMALL, "model.dim=4", *changes), tmp_path / "out"
    )
    assert result["privacy"]["epsilon_user"] in (12.0, 1.5)


def test_rows_add_up_and_gaussians_compose() -> None:
    """A row of 60 items at 0.01 each, 3 times, costs 1.8; as Gaussian noise it costs less."""
    row = 'mechanism=[{use="covey.privacy.uploads:NoisyUploads", epsilon=0.01, rows="all"%s}]'
    pure = planned(config_of("fedmf", *SMALL, row % "")).summary()
    assert pure["epsilon_user"] == pytest.approx(0.01 * 60 * 3)
    assert pure["unprotected"] == []
    owed = planned(config_of("fedmf", *SMALL, row % ', kind="gaussian", delta=1e-8')).summary(1e-5)
    assert owed["epsilon_user"] == pytest.approx(1.8) and owed["delta_user"] == pytest.approx(
        1.8e-6
    )
    assert owed["accountant"]["epsilon"] < 0.3


def test_a_delta_that_adds_up_to_too_much(tmp_path: Path) -> None:
    noise = NOISE.replace("epsilon=0.5", 'epsilon=0.5, kind="gaussian", delta=1e-3')
    with pytest.raises(CoveyError, match=r"a user's delta would add up to 0\.003"):
        run(
            config_of("fedmf", *SMALL, noise, "privacy.max_epsilon=9", "privacy.delta=0.0"),
            tmp_path / "out",
        )


def test_what_nobody_declared_is_shown() -> None:
    config = config_of("fedmf", *SMALL)
    prepared = prepare(config)
    method = method_of(config, prepared.catalogue)
    clients = clients_of(config, prepared, method)
    fleet = fleet_of(config, clients)
    fleet.meter.count("train", "stray", 8, fleet.ids_N[:1])
    (row,) = of_sent(fleet, clients.program, 1).table()
    assert (row["field"], row["epsilon_user_total"]) == ("stray", "none")
    assert "NOT DECLARED" in str(row["what"])
