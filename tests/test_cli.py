"""Errors of `covey run` and `covey resume`: one line, exit code 2, nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from command import SMALL, Covey, command, expect_line, expect_nothing, sets
from covey import __version__
from covey.aggregate.combine import Mean
from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.core.ragged import Ragged
from covey.data import Dataset
from covey.defenses.krum import Krum
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, start
from covey.engine.secure.settings import SINGLES
from covey.methods.cofedrec import CoClusters
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.run.config.shipped import read, shipped
from covey.solvers import Local

FEDERATED = [name for name in shipped("methods") if "pooled" not in read("methods", name)]
CLIP = '[[mechanism]]\nuse = "covey.defenses.clip:ClipRows"\n'
ARA = "--set attack.use=covey.attacks.a_ra:ARa"


# Bad words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--method fedmff", r"no method 'fedmff'; did you mean 'fedmf'\?"),
        ("--method zzz", r"no method 'zzz'; there are .*fedmf"),
        ("--method krum", "no method 'krum'; it is a defence: covey list defences"),
        ("--method a-ra", "no method 'a-ra'; it is an attack: covey list attacks"),
        ("--method fedmf --dataset none.csv.gz", r"no file none\.csv\.gz; is the path right\?"),
        (
            f"--method fedmf --dataset {__file__}",
            "is a file, not the name of a dataset; import it: covey data import /",
        ),
        (
            "--method fedmf --preset ratio-ful",
            r"no preset 'ratio-ful'; did you mean 'ratio-full'\?",
        ),
        ("--method fedmf --set solvr.lr=1", r"no option 'solvr'; did you mean 'solver'\?"),
        (
            "--method fedmf --set solver.epoch=1",
            r"Local has no option 'epoch'; did you mean 'epochs'\?",
        ),
        ("--method fedmf --set run.round=1", r"run has no option 'round'; did you mean 'rounds'\?"),
        (f"--method fedmf {ARA} --set attack.shar=1", r"did you mean 'share'\?"),
        (f"--method fedmf {ARA} --set attack.share=2", r"share is from 0 \(no attackers\) to 1"),
        ("--method fedmf --set split.kind=lo", r"split.kind = 'lo' .*did you mean 'loo'\?"),
        ("--method fedmf --set run.ceilings=['eas']", r"did you mean 'ease'\?"),
        ("--method fedmf --set weighting=equall", r"weighting = 'equall' .*did you mean 'equal'\?"),
        ('--method fedmf --set solver.epochs="three"', r"epochs = 'three' .*takes int"),
        ("--method fedmf --set solver.epochs=2.5", r"epochs = 2.5 .*takes int"),
        ("--method fedmf --set run.rounds=false", r"rounds = False .*takes int"),
        ("--method fedmf --set solver.lr=nan", r"lr = nan is not a number"),
        ("--method fedmf --set solver.lr=-1", "lr, decay and rates may not be negative"),
        ("--method fedmf --set solver=3", r"\[solver\] is a section"),
        ("--method fedmf --set run=3", r"\[run\] is a section"),
        ("--method fedmf --set mechanism.bound=3", r"write \[\[mechanism\]\]"),
        ("--method fedmf --set solver.lr", r"--set takes a.b=value, not 'solver.lr'"),
        ("--method fedmf --set =3", r"--set takes a.b=value"),
        (
            "--method fedmf --set solver.use=covey.solvers.local:Locl",
            r"no part 'Locl'; did you mean 'Local'\?",
        ),
        (
            "--method fedmf --set solver.use=covey.solver:Local",
            r"cannot find .*write use = \"module:Class\"",
        ),
        ("--method fedmf --set solver.use=.x:Local", r"cannot find .*write use = \"module:Class\""),
        (
            "--method fedmf --set combine.use=covey.solvers.local:Local",
            r"\[combine\] .*is no combine",
        ),
        ("--method fedmf --set model.dim=0", r"dim = 0; at least 1"),
        ("--method fedncf --set model.hidden=[0]", r"hidden = 0; at least 1"),
        ("--method fedmf --set objective.negatives=0", r"negatives = 0; at least 1"),
        ("--method fedmf --set engine.chunk=-1", r"engine: chunk"),
        ("--method fedmf --set evaluate.clients=-1", r"evaluate.clients is -1"),
        (
            "--method pfedrec --set solver.rates.item=1.0",
            r"has items, score, bias, and no parameter 'item'",
        ),
        (
            '--method fedcl --set mechanism=[{use="covey.methods.fedcl:HardNegatives",epsilon=0}]',
            "epsilon = 0.0; it must be",
        ),
        ("--method cofedrec --set grouping.categories=0", "categories = 0; at least 1"),
        ("--method ease --set pooled.weight=0", "weight = 0.0; it must be over 0"),
        ("--method mf --set pooled.batch=0", "batch = 0; at least 1"),
        (f"--method fedmf --seed {2**70}", "run.seed = .*; it has to fit into 62 bits"),
        ("--method fedmf --rounds 0", "rounds and checkpoint are at least 1"),
        (
            "--method fedmf --rounds few",
            r"--rounds: invalid int value: 'few'; see covey run --help",
        ),
        ("--method fedmf --round 3 --fast", r"unrecognized arguments: --fast; see covey --help"),
        ("--method fedmf --dataset ml-100", r"no dataset 'ml-100'.*COVEY_DATA"),
        (
            "--method fedmf --set engine.device=gpu",
            r"engine.device = 'gpu': valid are 'cpu', 'cuda'",
        ),
        ("", "name a method"),
        ("none.toml", "cannot read none.toml: No such file.*give the path of a TOML file"),
    ],
)
def test_bad_words(
    arguments: str, message: str, covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COVEY_DATA", raising=False)
    expect_line(covey("run", *arguments.split(), "--out", tmp_path / "out"), message)
    expect_nothing(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = \n", r"is not valid TOML: .*line 1"),
        ("\xff", "is not valid TOML"),
        ("", r"no \[model\]; start from one: covey run --method fedncf"),
        (
            '[[mechanism]]\nuse = "covey.defenses.clip:ClipRow"\n',
            r"no part 'ClipRow'; did you mean 'ClipRows'\?",
        ),
        (f"{CLIP}bond = 1.0\n", r"ClipRows has no option 'bond'; did you mean 'bound'\?"),
        (CLIP + CLIP, "two mechanisms share a name.*give each its own"),
        ("[model]\ndim = 3\n", r"\[model\] names no class; write use = \"module:Class\""),
        ("method = 3\n", r"method = 3 .*takes str"),
        ("[[solver]]\nlr = 1.0\n", r"\[solver\] is a section"),
    ],
)
def test_bad_files(text: str, message: str, covey: Covey, tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(text, encoding="latin-1")
    method = ["--method", "fedmf", *sets(*SMALL)] if "[[" in text or "method" in text else []
    expect_line(covey("run", file, *method, "--out", tmp_path / "out"), message)
    expect_nothing(tmp_path / "out")


def test_a_command_is_needed(covey: Covey) -> None:
    expect_line(covey(), "COMMAND; see covey --help")
    expect_line(covey("rn"), r"invalid choice: 'rn' \(choose from .*run")


def test_the_module_is_the_command() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "covey", "--version"], capture_output=True, text=True, check=True
    )
    assert output.stdout == f"covey {__version__}\n"
    wrong = subprocess.run([sys.executable, "-m", "covey", "rn"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "invalid choice: 'rn'" in wrong.stderr


# What does not go together


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        ("fedmf", ["objective.use=covey.objectives:Bpr", "solver.batch=8"], "set solver.batch = 0"),
        (
            "fedcl",
            ["objective.use=covey.objectives:Bce"],
            "GRU has no private user vector.*NextItemSoftmax",
        ),
        (
            "fedcl",
            ["objective.use=covey.objectives:Bpr"],
            "GRU has no private user vector.*NextItemSoftmax",
        ),
        (
            "fedmf",
            ["model.use=covey.models.spectral:Spectral"],
            "Spectral has no private user vector",
        ),
        ("fedmf", ["objective.use=covey.objectives:NoObjective"], r"leave out \[solver\]"),
        (
            "fedmf",
            ["split.kind=ratio", "evaluate.candidates=sampled"],
            "use split.kind = 'loo', or",
        ),
        ("fedmf", ["evaluate.candidates=sampled"], "rank all items: evaluate.candidates = 'full'"),
        ("fedmf", ["split.kind=temporal", "split.order=random"], "use order = 'time'"),
        (
            "cofedrec",
            ["grouping.use=covey.aggregate.grouping:Everyone"],
            "listens to 'co-clusters', which is not here",
        ),
        (
            "cl4fedrec",
            ["objective.use=covey.objectives:Bpr"],
            "learns from single items: use covey.objectives:Bce",
        ),
        ("cofedrec", ["model.keep_items=false"], "use a model with keep_items = true"),
        (
            "fedcl",
            ['mechanism.+={use="covey.methods.cl4fedrec:Contrast"}'],
            "needs a model with a private user",
        ),
        (
            "pfedrec",
            ['mechanism=[{use="covey.methods.pdc_frs:DataContribution"}]'],
            "LinearScore has score, bias",
        ),
        ("pfedrec", ["attack.use=covey.attacks.a_ra:ARa"], "use MF or NCF"),
        (
            "fedmf",
            ["attack.use=covey.attacks.a_ra:ARa", "attack.targets=[4000]"],
            "name items from 0 to 59",
        ),
        ("ease", ["attack.use=covey.attacks.a_ra:ARa"], r"leave out \[attack\]"),
        ("spectral", ["mechanism=[]"], r"nothing would be trained.*\[solver\]"),
        ("fedmf", ["data.min_user=1000"], "a filter too strict"),
    ],
)
def test_impossible_pairs(
    method: str, changes: list[str], message: str, covey: Covey, tmp_path: Path
) -> None:
    """Also those that come to light in the first round, when there is a folder already."""
    other = method in ("ease", "spectral") or "Spectral" in str(
        changes
    )  # a model without `dim`, or none
    sizes = [s for s in SMALL if not (other and s.startswith("model."))]
    output = covey("run", "--method", method, *sets(*sizes, *changes), "--out", tmp_path / "out")
    expect_line(output, message)
    expect_nothing(tmp_path / "out")


@pytest.mark.parametrize(
    "parts", [{"combine": Krum()}, {"combine": Mean(), "grouping": CoClusters(2)}]
)
def test_a_secure_fleet_hides_single_uploads(parts: dict[str, object]) -> None:
    catalogue = Catalogue(5)
    method = Method(LinearScore(2, keep_items=True), Bce(), catalogue, Local("sgd"), **parts)  # type: ignore[arg-type]
    program = Program(method.model, method.objective, catalogue, method.solver)
    lists = Ragged.of([[0, 1], [1, 2]])
    fleet = SimulatedFleet(program, LocalData(TrainingData(lists, lists)), hides=SINGLES)
    with pytest.raises(CoveyError, match="reads single uploads, which secure aggregation hides"):
        enrol(start(method), fleet, method)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
@pytest.mark.parametrize("method", ["fedmf", "ease"])
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_no_cuda(method: str, device: str, covey: Covey, tmp_path: Path) -> None:
    output = covey(
        "run", "--method", method, *sets(f"engine.device={device}"), "--out", tmp_path / "out"
    )
    expect_line(
        output,
        f"engine.device = '{device}' but no such CUDA device is here; use --set engine.device=cpu",
    )
    expect_nothing(tmp_path / "out")


# Bad data


def prepared(
    path: Path, user: object, item: object, time: object = None, clock: bool = False
) -> Path:
    user_E, item_E = np.asarray(user, np.int32), np.asarray(item, np.int32)
    time_E = None if time is None else np.asarray(time, float)
    sizes = (int(id_E.max(initial=-1)) + 1 for id_E in (user_E, item_E))
    Dataset(path.stem, *sizes, user_E, item_E, time_E, clock=clock).save(path)
    return path


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([], []), "has no interactions; is its file empty"),
        (([0] * 5, range(5)), "has 1 user; federated training needs at least 2"),
        (([0, 1], [0, 0]), "has 1 item; ranking needs at least 2"),
        (
            ([0, 0, 0, 1, 1, 1], [0, 1, 2] * 2, [1, 2, np.nan] * 2),
            "missing or infinite times; fix those rows",
        ),
        (
            ([0, 0, 0, 1, 1, 1], [0, 1, 2] * 2, [1, 2, np.inf] * 2),
            "missing or infinite times; fix those rows",
        ),
        (([0, 0, 1, 1], [0, 1, 0, 1]), "users need at least 3 interactions; choose another split"),
    ],
)
def test_bad_data(columns: tuple[object, ...], message: str, covey: Covey, tmp_path: Path) -> None:
    data = prepared(tmp_path / "data.npz", *columns)  # type: ignore[arg-type]
    for method in ("fedmf", "popularity"):
        expect_line(
            covey("run", "--method", method, "--dataset", data, "--out", tmp_path / "out"), message
        )
        expect_nothing(tmp_path / "out")


def test_a_temporal_split_needs_a_clock(covey: Covey, tmp_path: Path) -> None:
    data = prepared(tmp_path / "data.npz", [0] * 4 + [1] * 4, [0, 1, 2, 3] * 2, [1, 2, 3, 4] * 2)
    output = covey(
        "run",
        "--method",
        "fedmf",
        "--preset",
        "temporal-full",
        "--dataset",
        data,
        "--out",
        tmp_path / "out",
    )
    expect_line(output, "has no clock.*use split.kind = 'loo' or 'ratio'")
    expect_nothing(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty; a header and one row for each interaction are needed"),
        ("user,item,timestamp\n", "has no interactions; is its file empty"),
        ("user,itm\n1,2\n", "has no column 'item'; it has: user, itm"),
        ("user,item,timestamp\n1,2,nan\n2,3,1\n", "of 2 rows there are 1 without time"),
        ("user,item,timestamp\n1,2,noon\n", "line 2: 'noon' is no time"),
        ("user,item,timestamp\n1,2\n", "line 2: 2 columns, the header has 3"),
        (None, r"no dataset 'shop'; did you mean 'shops'\?"),
    ],
)
def test_bad_csv(
    text: str | None, message: str, covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data" / ("shops" if text is None else "shop")
    folder.mkdir(parents=True)
    (folder / "interactions.csv").write_text(text or "")
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "data"))
    expect_line(
        covey("run", "--method", "fedmf", "--dataset", "shop", "--out", tmp_path / "out"), message
    )
    expect_nothing(tmp_path / "out")


IDLE = '''
from dataclasses import dataclass

@dataclass(frozen=True)
class Idle:
    """An attacker that sends what an honest client without any item would send."""

    name: str = "idle"
    knowledge: str = ""

    def poison(self, view, upload):
        return {}, upload
'''


@pytest.mark.parametrize("rows", ["distinct", "given"])
@pytest.mark.parametrize("name", FEDERATED)
def test_awkward_people_are_served(
    name: str, rows: str, covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated interactions, users with one or two items, one with all, and attackers with none."""
    user = [*np.repeat(np.arange(12), 6), *[12] * 30, 13, 14, 14]
    item = [*np.random.default_rng(0).integers(0, 30, 72), *range(30), 3, 4, 5]
    user, item = user + user[:20], item + item[:20]
    data = prepared(tmp_path / "odd.npz", user, item, range(len(user)), clock=True)
    (tmp_path / "idle_attack.py").write_text(IDLE)
    monkeypatch.syspath_prepend(tmp_path)
    changes = sets(
        "attack.use=idle_attack:Idle", "attack.share=0.2", f"split.rows={rows}", "run.ceilings=[]"
    )
    none = name in ("ease-sums", "popularity-private")  # nothing to make small
    changes += (
        [] if none else sets("model.rank=8" if name.startswith("spectral") else "model.dim=4")
    )
    changes += (
        sets("mechanism.0.similarity=itself") if name.startswith("pdc-frs") else []
    )  # there are no titles
    more = ("--rounds", 2, "--trust", "idle_attack", "--json", "--out", tmp_path / "out")
    output = covey("run", "--method", name, "--dataset", data, *changes, *more)
    assert (output.code, output.err) == (0, "")
    result = json.loads(output.out, parse_constant=pytest.fail)
    assert result["traffic"]["dropped"] == {}
    assert 0 <= result["test"]["ndcg@10" if "ndcg@10" in result["test"] else "ndcg@20"] <= 1


# The real command


def test_the_command_fails_in_one_line(tmp_path: Path) -> None:
    done = command(
        "run", "--method", "fedmf", *sets(*SMALL, "solver.epoch=1"), "--out", tmp_path / "out"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "covey: Local has no option 'epoch'; did you mean 'epochs'?\n"
    expect_nothing(tmp_path / "out")


def test_the_command_is_quiet_without_a_terminal(tmp_path: Path) -> None:
    done = command("run", "--method", "fedmf", *sets(*SMALL), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "results in runs/fedmf-synthetic-0" in done.stdout
