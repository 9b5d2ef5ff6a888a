"""The page on fleets: its fleet runs as printed and loses a third of the clients."""

import json
import re
import shlex
from pathlib import Path

import pytest

from covey.cli import main
from covey.contract.fleet import Fleet
from covey.engine.fleet.base import Metered, Resumable, RunFleet, Simulation

PAGE = (Path(__file__).parents[2] / "docs/fleets.md").read_text(encoding="utf-8")
WIRE, OWN = (
    shlex.split(line)
    for line in re.findall(r"^\.venv/bin/covey (run .*)$", PAGE, flags=re.MULTILINE)
)


def rounds(out: str) -> list[dict[str, int]]:
    return [json.loads(line) for line in Path(out, "rounds.jsonl").read_text().splitlines()]


def test_the_fleet_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "unreliable.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert main.main(OWN) == 0
    later = rounds("runs/unreliable")[1:]
    assert len(later) == 5
    assert all(abs(line["dropped"] - line["clients"] / 2) <= 1 for line in later)


def test_the_wire_fleet_counts_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [*WIRE, "--set", "data.users=40", "--set", "run.ceilings=[]"]
    place = small.index("fleet.use=covey.engine.fleet.wire:WireFleet")
    other = [*small[: place - 1], *small[place + 1 :], "--out", "runs/simulated"]
    assert main.main(small) == 0 and main.main(other) == 0
    sent = [
        [(line["up_bytes"], line["down_bytes"]) for line in rounds(out)]
        for out in ("runs/wire", "runs/simulated")
    ]
    assert sent[0] == sent[1] and sum(up for up, _ in sent[0]) > 0


def test_the_tables_have_every_member() -> None:
    listed = re.findall(r"`(\w+)(?:\(\w*\))?`", PAGE)
    for protocol in (Fleet, RunFleet, Metered, Resumable, Simulation):
        members = [name for name in vars(protocol) if not name.startswith("_")]
        assert members and set(members) <= set(listed), protocol
