"""Rules for the pages: what they name exists, what they print works, methods have pages."""

import ast
import dataclasses
import json
import os
import re
import shlex
import subprocess
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from covey.cli import main
from covey.contract.aggregation import Combine, Grouping
from covey.contract.mechanism import Mechanism
from covey.contract.model import Model
from covey.contract.objective import Objective
from covey.data.synthetic import Synthetic, generate
from covey.run.config.shipped import shipped
from covey.study.papers.docs import render

ROOT = Path(__file__).parents[2]
PAGES = {
    p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8")
    for p in (ROOT / "docs").rglob("*.md")
}
OTHERS = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES |= {name: (ROOT / name).read_text(encoding="utf-8") for name in OTHERS}
INDEX = PAGES["docs/methods/index.md"]
METHODS = {n: text for n, text in PAGES.items() if n.startswith("docs/methods/")}
del METHODS["docs/methods/index.md"]

# Fields that a part fixes, or that say what it is; nobody sets them in a config.
FIXED = {*vars(Model), *vars(Objective), *Mechanism.__annotations__, *Grouping.__annotations__}
FIXED |= {*Combine.__annotations__, "knowledge"}
READERS = "covey.methods.fedprox:Proximal"  # where the reader's own method would stand


def every(pattern: str, pages: dict[str, str] = PAGES) -> list[tuple[str, re.Match[str]]]:
    return [
        (name, m) for name, text in pages.items() for m in re.finditer(pattern, text, re.MULTILINE)
    ]


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def names_in(path: Path) -> set[str]:
    """Functions and classes of a module, and those inside its classes as Class.name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef)
            }
    return found


def part(use: str) -> Any:
    module, _, name = use.partition(":")
    return getattr(import_module(module), name)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Arguments of every covey command in the pages' blocks."""
    for name, block in every(r"^```sh\n((?:.*\n)*?)```$"):
        for line in block[1].replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if ".venv/bin/covey" in words:
                yield name, words[words.index(".venv/bin/covey") + 1 :]


COMMANDS = sorted({(name, tuple(words)) for name, words in commands()})
OPTIONS = every(r"^Options of `(covey[\w.]*:\w+)`.*\n\n\|.*\n\|[-|]+\n((?:\|.*\n)+)")


def test_there_is_something_to_check() -> None:
    assert len(METHODS) >= 15
    assert len(COMMANDS) >= 20
    assert len(OPTIONS) >= 15


@pytest.mark.parametrize("method", shipped("methods"))
def test_every_method_has_a_page(method: str) -> None:
    assert any(f"src/covey/configs/methods/{method}.toml" in text for text in METHODS.values())


def test_the_overview_lists_every_method_once() -> None:
    links = re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", INDEX, re.MULTILINE)
    pages = [Path(name).name for name in METHODS]
    assert sorted({*links}) == sorted(pages)
    again = "cl4fedrec.md"  # its regulariser is a defence
    assert sorted(links) == sorted([*pages, again])


@pytest.mark.parametrize("kind", ["methods", "attacks", "defences"])
def test_the_overview_names_everything_that_is_shipped(kind: str) -> None:
    rows = "\n".join(re.findall(r"^\| \[.*", INDEX, re.MULTILINE))
    assert not set(shipped(kind)) - set(re.findall(r"`([\w-]+)`", rows))


@pytest.mark.parametrize("heading", ["How it works", "Use", "Options", "Equation map", "Reference"])
def test_every_method_page_has_its_parts(heading: str) -> None:
    assert not [name for name, text in METHODS.items() if f"\n## {heading}\n" not in text]


def test_links_lead_somewhere() -> None:
    links = [
        (name, target)
        for name, text in PAGES.items()
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(text))
    ]
    near = [(name, target) for name, target in links if "://" not in target]
    assert near
    files = [(name, target.partition("#")[0]) for name, target in near]
    missing = [(name, file) for name, file in files if not ((ROOT / name).parent / file).exists()]
    assert not missing


def test_the_ways_in_name_few_files() -> None:
    """Whoever wants to change one thing has at most five files to read, and five to touch."""
    ways = re.findall(
        r"^### I want to .*\n((?:(?!#).*\n)*)", PAGES["CONTRIBUTING.md"], re.MULTILINE
    )
    assert len(ways) == 5
    for way in ways:
        rows = re.findall(r"^\| (.*?) \| (.*?) \|$", way.replace("| |", "|  |"), re.MULTILINE)[1:]
        assert 2 <= len(rows) <= 5, way


def test_files_and_functions_exist() -> None:
    missing = []
    for name, m in every(r"`((?:src|papers|bench|tests|docs|results)/[\w/.-]+?)(?::([\w.]+))?`"):
        path = ROOT / m[1]
        stored = m[1].startswith("results/")  # made by a study when it is run
        if not stored and (not path.exists() or (m[2] and m[2] not in names_in(path))):
            missing.append(f"{name}: {m[0]}")
    assert not missing


def test_parts_exist() -> None:
    for name, m in every(r"\b(covey\.[\w.]+:\w+)"):
        assert m[1] == READERS or part(m[1]) is not None, name


def test_imports_work() -> None:
    """What blocks of Python import from Covey, on every page."""
    lines = every(r"^ *from (covey[\w.]*) import (.+)$")
    assert len(lines) >= 10
    for page, line in lines:
        for name in line[2].split(", "):
            assert hasattr(import_module(line[1]), name), f"{page}: {line[0]}"


@pytest.mark.parametrize(
    ("page", "table"), OPTIONS, ids=lambda x: x[1] if isinstance(x, re.Match) else ""
)
def test_options_are_all_there_with_their_defaults(page: str, table: re.Match[str]) -> None:
    fields = {f.name: f for f in dataclasses.fields(part(table[1]))}
    rows = {m[1]: m[2] for m in re.finditer(r"^\| `(\w+)` \| (.*?) \|", table[2], re.MULTILINE)}
    assert set(rows) == set(fields) - FIXED, page
    for option, cell in rows.items():
        f = fields[option]
        default = f.default if f.default is not dataclasses.MISSING else f.default_factory()  # type: ignore[misc]
        default = list(default) if isinstance(default, tuple) else default
        assert tomllib.loads(f"x = {cell}")["x"] == default, f"{page}: {option}"


@pytest.mark.parametrize(
    ("use", "shown", "own"),
    [
        ("covey.attacks.a_ra:ARa", "covey.attacks.a_hum:AHum", {}),
        ("covey.attacks.explicit:ExplicitBoost", "covey.attacks.bandwagon:Bandwagon", {}),
        ("covey.attacks.random_profile:RandomProfile", "covey.attacks.bandwagon:Bandwagon", {}),
        ("covey.attacks.popular:PopularProfile", "covey.attacks.bandwagon:Bandwagon", {}),
        (
            "covey.attacks.overstated:Overstated",
            "covey.attacks.bandwagon:Bandwagon",
            {"scale": 10.0},
        ),
        ("covey.defenses.krum:Krum", "covey.defenses.bulyan:Bulyan", {}),
        ("covey.defenses.krum_mean:KrumMean", "covey.defenses.bulyan:Bulyan", {}),
        ("covey.defenses.multi_krum:MultiKrum", "covey.defenses.bulyan:Bulyan", {}),
        ("covey.defenses.median:Median", "covey.defenses.trimmed:TrimmedMean", {}),
        ("covey.pooled.ncf:PooledNCF", "covey.pooled.mf:PooledMF", {"hidden": (32, 16)}),
        ("covey.pooled.sequence:PooledGRU", "covey.pooled.sequence:PooledSASRec", {}),
        (
            "covey.pooled.sequence:PooledBERT4Rec",
            "covey.pooled.sequence:PooledSASRec",
            {"heads": 2, "epochs": 500, "hide": 0.2, "end": 0.1},
        ),
        (
            "covey.methods.private_sums:PrivateCount",
            "covey.methods.private_sums:PrivateSubspace",
            {"sums": 1},
        ),
    ],
)
def test_options_that_are_those_of_another_table(use: str, shown: str, own: dict[str, Any]) -> None:
    """The pages show the table of `shown` and say in words what is other for `use`."""
    mine, other = (
        {f.name: f.default for f in dataclasses.fields(part(x)) if f.name not in FIXED}
        for x in (use, shown)
    )
    assert {k: v for k, v in mine.items() if k not in own}.items() <= other.items()
    assert own.items() <= mine.items()


@pytest.mark.parametrize(
    ("page", "arguments"), COMMANDS, ids=lambda x: x if isinstance(x, str) else " ".join(x)[:60]
)
def test_commands_are_understood(
    page: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Up to the point where the run would begin."""
    begun: list[Path] = []
    monkeypatch.setattr(main, "_train", lambda config, out, options, resume: begun.append(out) or 0)
    monkeypatch.setattr("covey.data.cache.find", lambda name: None)  # whatever datasets are here
    monkeypatch.chdir(tmp_path)
    shipped_only = "--trust" not in arguments and not arguments[1].endswith(".toml")
    if arguments[0] == "run" and shipped_only:
        assert main.main(arguments) == 0 and begun
    else:
        main._parser().parse_args(arguments)  # of a file or a folder that is the reader's


def test_the_example_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGES["README.md"], re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    figure, lists, new, sent = capsys.readouterr().out.splitlines()
    assert float(figure.split()[0]) > 1.5 * float(figure.split()[-1]) and "floor:" in figure
    assert "'3'" in lists and "'7'" in lists and new.count(",") == 4 and "spectral/rows" in sent
    assert code.count("\n") <= 12


@pytest.mark.parametrize("name", ["README.md", "docs/quick-start.md"])
def test_the_first_run_is_above_popularity(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The first recommender has learned, the next commands read what it left, own data follow.

    The three commands on a file of 100,000 rows take a minute at most.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    hundred_thousand(tmp_path / "ratings.csv")
    shown = ("run", "report", "recommend", "data")
    first, *more = [words for page, words in commands() if page == name and words[0] in shown]
    assert main.main([*first, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    figure, floor = result["test"]["ndcg@20"], result["floor"]["popularity"]["ndcg@20"]
    assert figure > 1.5 * floor
    assert f"ndcg@20 about {figure:.2f} against {floor:.2f}" in PAGES[name]
    assert len(more) >= 5
    seconds = []
    for words in more:
        began = time.monotonic()
        assert main.main(words) == 0
        seconds.append(time.monotonic() - began)
    own = next(place for place, words in enumerate(more) if words[0] == "data")
    assert [words[0] for words in more[own:]] == ["data", "run", "recommend"]
    assert sum(seconds[own:]) < 60, seconds


@pytest.mark.skipif("COVEY_DATA" not in os.environ, reason="COVEY_DATA is unset")
def test_the_command_of_the_readme_gives_the_figure_of_spectral(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = re.findall(r"covey (run .*--seed) 0$", PAGES["README.md"], re.MULTILINE)
    found = []
    for seed in ("0", "1", "2"):
        out = ["--out", str(tmp_path / seed), "--set", "run.ceilings=[]", "--json"]
        assert main.main([*shlex.split(line), seed, *out]) == 0
        found.append(json.loads(capsys.readouterr().out)["test"]["ndcg@20"])
    (stated,) = re.findall(r"^\| spectral \|.*\| (\S+) ± ", PAGES["README.md"], re.MULTILINE)
    assert f"{sum(found) / 3:.4f}" == stated


def hundred_thousand(path: Path) -> None:
    """A file of ratings of the size of MovieLens-100K."""
    rows = generate(Synthetic(users=943, items=1682, mean_items=106.0))
    pairs = zip(rows.user_E.tolist(), rows.item_E.tolist())
    lines = (f"{user + 1},{item + 1},{n % 5 + 1},{n}\n" for n, (user, item) in enumerate(pairs))
    path.write_text("user,item,rating,timestamp\n" + "".join(lines))


def test_the_targets_of_the_readme_exist() -> None:
    """`make` itself says what they would do, and does nothing."""
    targets = re.findall(r"^make (\S+)$|`make (\S+)`", PAGES["README.md"], re.MULTILINE)
    names = sorted({one or other for one, other in targets})
    assert {"demo", "test"} <= set(names)
    done = subprocess.run(
        ["make", "-n", *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_extras_exist() -> None:
    """Those that one is told to install."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    named = {extra for _, m in every(r"(?:\bcovey|'\.)\[([a-z,]+)\]") for extra in m[1].split(",")}
    assert {"privacy", "secure", "hpo"} <= named <= set(known)


def test_tables_are_those_that_are_stored(tmp_path: Path) -> None:
    """A page is rendered from results/, and a mark without a stored table stays as it is."""
    marked = {
        name: text
        for name, text in PAGES.items()
        if re.search(r"^<!-- \w+:[\w-]+", text, re.MULTILINE)
    }
    for name, text in marked.items():
        (tmp_path / name.replace("/", "-")).write_text(text, encoding="utf-8")
    assert "README.md" in marked and len(list(tmp_path.iterdir())) == len(marked)
    assert render(tmp_path, ROOT / "results") == []
    assert render(tmp_path, tmp_path / "nothing stored") == []
    assert (
        main.main(
            ["reproduce", "--docs", str(tmp_path / "README.md"), "--results", str(ROOT / "results")]
        )
        == 0
    )
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == PAGES["README.md"]
