"""A small table of a paper of one's own, for the tests of `covey reproduce`."""

from pathlib import Path

from covey.run.config.tree import parse
from covey.study.papers.plan import Table, table

HEAD = """
title = "Two rows"
metrics = ["hit@10", "ndcg@10"]
seeds = 2
set = ["data.users=30", "data.items=60", "data.mean_items=8", "run.ceilings=[]", "run.checkpoint=1"]
[[column]]
label = "tiny"
presets = ["loo-full"]
"""
TABLE = (
    HEAD
    + """[[row]]
label = "FedMF"
method = "fedmf"
set = ["run.rounds=3", "model.dim=4"]
[row.paper]
tiny = { "hit@10" = 0.2, "ndcg@10" = 0.3 }
[[row]]
label = "popularity"
method = "popularity"
role = "floor"
seeds = 1
[[claim]]
text = "FedMF beats counting"
better = "FedMF"
worse = "popularity"
columns = ["tiny"]
metrics = ["hit@10"]
"""
)
SWEEP = """
[sweep]
label = "width"
set = ["model.dim={}"]
values = [2, 4]
"""


def made(tmp_path: Path, text: str = TABLE) -> Table:
    path = tmp_path / "two.toml"
    path.write_text(text)
    return table("own", "two", parse(path))
