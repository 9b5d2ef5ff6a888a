"""The same code on CUDA: the same bits twice, and the CPU's figures up to rounding."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from covey.core.rng import mix
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.run.config.tree import assign, merge
from covey.run.loop import run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
SMALL = [
    "data.users=60",
    "data.items=80",
    "data.mean_items=9",
    "run.rounds=3",
    'run.unit="round"',
    "run.cohort=40",
]
SMALL += ["run.ceilings=[]"]
DISCONTINUOUS = {  # in the last bit: groups, categories, graphs and bases
    *(
        "cofedrec",
        "cofedrec-mf",
        "cofedrec-ncf",
        "gpfedrec",
        "gpfedrec-printed",
        "pfedrec-contrast",
        "pfedrec-similarity",
        "spectral",
    ),
    "spectral-private",
}
OWN = {
    "cofedrec": ["grouping.categories=4"],
    "fedcl": ["model.dim=8"],
    "spectral": ["model.rank=8"],
}
OWN |= {"spectral-private": ["model.rank=8"], "pdc-frs-titles": ["mechanism.0.similarity=words"]}
# If a unit is active for every candidate, its bias moves all scores alike. The gradient of a
# softmax is then rounding only, and Adam takes steps of one size.
ROUNDING = {"fedcl-mlp": {"b0", "b1", "b2"}}
FEDERATED = [name for name in shipped("methods") if "pooled" not in read("methods", name)]


def public_of(name: str, out: Path, device: str) -> dict[str, torch.Tensor]:
    tree = merge(read("methods", name) | {"method": name}, read("presets", "loo-full"))
    run(Config.of(assign(tree, [*SMALL, *OWN.get(name, []), f'engine.device="{device}"'])), out)
    return load_file(out / "model.safetensors")


def test_words_are_the_same_on_both() -> None:
    words = torch.arange(-1000, 1000) * 0x1234567890ABCDE
    assert torch.equal(mix(words), mix(words.cuda()).cpu())


@pytest.mark.parametrize("name", FEDERATED)
def test_cuda_repeats_itself_and_agrees_with_the_cpu(name: str, tmp_path: Path) -> None:
    first, again = (public_of(name, tmp_path / str(turn), "cuda") for turn in range(2))
    slow = public_of(name, tmp_path / "cpu", "cpu")
    for key, value in first.items():
        assert torch.equal(value, again[key]), f"{key} differs between two runs on CUDA"
        if name not in DISCONTINUOUS and key not in ROUNDING.get(name, ()):
            share = (value - slow[key]).abs().le(1e-3 + 1e-2 * slow[key].abs()).float().mean()
            assert share > 0.98, f"{key}: only {share:.3f} agree with the CPU"
