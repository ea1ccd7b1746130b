"""Scaled-down checkpoints in the published format of LLaDA-8B-Instruct and Dream-v0-Instruct-7B.

The files, the keys of `config.json`, the tensor names, the spread over shards, the special tokens and the chat
templates are those of the published folders; sizes, ids and weights are not. With `real_ids=True` the vocabulary
has its published size too. The model code of the published folders is left out: nothing here may be executed.

Stand-ins: the merges of both vocabularies, and the splitting rule of LLaDA's tokenizer, which takes Dream's.
"""

import json
import re
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

ABSENT = object()
"""As the value of a configuration key: leave the key out."""

_PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
"""Configurations, tokens and tokenizer settings of the published folders, and a text to learn merges from."""
_LLADA, _DREAM = _PUBLISHED["llada"], _PUBLISHED["dream"]

SPARE_ROWS = 8
"""Rows of a small embedding that no token owns; the published embeddings have 115 (LLaDA) and 397 (Dream)."""


def llada(
    folder: Path | str,
    *,
    seed: int = 0,
    vocab: int = 512,
    layers: int = 3,
    d_model: int = 64,
    heads: int = 4,
    kv_heads: int = 4,
    mlp: int = 192,
    shards: int = 3,
    real_ids: bool = False,
    dtype: str = "bfloat16",
    single_file: bool = False,
    **config_changes: Any,
) -> Path:
    """Write a checkpoint of the LLaDA kind to `folder` (made if missing) and return its path.

    `config_changes` are set in `config.json` last and change nothing else.
    """
    folder = _made(folder)
    special = _llada_special(real_ids)
    rows, base = (126464, 126080) if real_ids else (vocab, vocab - SPARE_ROWS - len(special))
    ids = {token: base + i for i, token in enumerate(special)}
    eos = ids["<|endoftext|>"]
    config = _LLADA["config"] | {
        "d_model": d_model,
        "embedding_size": rows,
        "eos_token_id": eos,
        "mask_token_id": ids["<|mdm_mask|>"],
        "mlp_hidden_size": mlp,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "n_layers": layers,
        "pad_token_id": eos,
        "vocab_size": rows,
    }
    _write_json(folder / "config.json", _changed(config, config_changes))
    _write_json(
        folder / "generation_config.json",
        {
            "_from_model_config": True,
            "bos_token_id": ids["<|startoftext|>"],
            "eos_token_id": eos,
            "transformers_version": "4.38.2",
        },
    )
    _llada_tokenizer(folder, ids, base)
    shapes = _llada_shapes(rows, layers, d_model, d_model // heads * kv_heads, mlp)
    weights = _weights(shapes, seed, dtype)
    _quieten(weights["model.transformer.ff_out.weight"], ids["<|mdm_mask|>"], base + len(ids))
    _write_weights(folder, weights, shards, single_file)
    return folder


def dream(
    folder: Path | str,
    *,
    seed: int = 0,
    vocab: int = 512,
    layers: int = 3,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    mlp: int = 160,
    shards: int = 2,
    real_ids: bool = False,
    dtype: str = "bfloat16",
    single_file: bool = False,
    **config_changes: Any,
) -> Path:
    """Write a checkpoint of the Dream kind to `folder` (made if missing) and return its path.

    `config_changes` are set in `config.json` last and change nothing else.
    """
    folder = _made(folder)
    rows, base = (152064, 151643) if real_ids else (vocab, vocab - SPARE_ROWS - len(_DREAM["tokens"]))
    ids = {token: base + i for i, token in enumerate(_DREAM["tokens"])}
    eos = ids["<|endoftext|>"]
    # bos is <|beginoftext|> for the tokenizer and <|endoftext|> here, as published.
    config = _DREAM["config"] | {
        "bos_token_id": eos,
        "eos_token_id": eos,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "mask_token_id": ids["<|mask|>"],
        "max_window_layers": layers,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "pad_token_id": eos,
        "torch_dtype": dtype,
        "vocab_size": rows,
    }
    _write_json(folder / "config.json", _changed(config, config_changes))
    generation = _DREAM["generation"] | {"bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos}
    _write_json(folder / "generation_config.json", generation)
    _dream_tokenizer(folder, ids, base)
    shapes = _dream_shapes(rows, layers, hidden, hidden // heads * kv_heads, mlp)
    weights = _weights(shapes, seed, dtype)
    _quieten(weights["lm_head.weight"], ids["<|mask|>"], base + len(ids))
    _write_weights(folder, weights, shards, single_file)
    return folder


def special_ids(folder: Path | str) -> dict[str, int]:
    """The special tokens of a written checkpoint, by their text."""
    config = json.loads((Path(folder) / "tokenizer_config.json").read_text(encoding="utf-8"))
    return {entry["content"]: int(i) for i, entry in config["added_tokens_decoder"].items()}


# Weights.


def _llada_shapes(rows: int, layers: int, width: int, kv_width: int, mlp: int) -> dict[str, tuple[int, ...]]:
    """Every tensor, kind by kind: cut into runs, a layer lies in several shards, as in the published index."""
    block = {
        "attn_out": (width, width),
        "ff_out": (width, mlp),
        "attn_norm": (width,),
        "ff_norm": (width,),
        "q_proj": (width, width),
        "k_proj": (kv_width, width),
        "v_proj": (kv_width, width),
        "ff_proj": (mlp, width),
        "up_proj": (mlp, width),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.transformer.wte.weight": (rows, width),
        "model.transformer.ln_f.weight": (width,),
    }
    for kind, shape in block.items():
        shapes |= {f"model.transformer.blocks.{n}.{kind}.weight": shape for n in range(layers)}
        if kind == "attn_out":
            shapes["model.transformer.ff_out.weight"] = (rows, width)
    return shapes


def _dream_shapes(rows: int, layers: int, width: int, kv_width: int, mlp: int) -> dict[str, tuple[int, ...]]:
    """Every tensor, layer by layer: cut into runs, only the layer at a cut lies in two shards, as published."""
    layer = {
        "self_attn.q_proj.weight": (width, width),
        "self_attn.q_proj.bias": (width,),
        "self_attn.k_proj.weight": (kv_width, width),
        "self_attn.k_proj.bias": (kv_width,),
        "self_attn.v_proj.weight": (kv_width, width),
        "self_attn.v_proj.bias": (kv_width,),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (mlp, width),
        "mlp.up_proj.weight": (mlp, width),
        "mlp.down_proj.weight": (width, mlp),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (rows, width)}
    for n in range(layers):
        shapes |= {f"model.layers.{n}.{kind}": shape for kind, shape in layer.items()}
    return shapes | {"model.norm.weight": (width,), "lm_head.weight": (rows, width)}


def _weights(shapes: dict[str, tuple[int, ...]], seed: int, dtype: str) -> dict[str, Tensor]:
    return {name: _drawn(name, shape, seed).to(getattr(torch, dtype)) for name, shape in shapes.items()}


def _drawn(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """A tensor that depends on the seed, its name and its shape alone.

    Uniform numbers of the frozen legacy generator: no logarithm, so the same bits on every machine and NumPy.
    """
    centred = 2.0 * np.random.RandomState([seed, zlib.crc32(name.encode())]).random_sample(shape) - 1.0
    if "norm" in name or "ln_f" in name:
        values = 1.0 + 0.6 * centred  # not all ones, or a swapped norm would pass
    elif name.endswith("bias"):
        values = 0.8 * centred
    else:
        fan_in = 1 if "wte" in name or "embed" in name else shape[-1]
        # A uniform number on (-1, 1) has variance 1/3.
        values = np.sqrt(3.0 / fan_in) * _gain(name) * centred
    return torch.from_numpy(values.astype(np.float32))


def _gain(name: str) -> float:
    """How much a matrix amplifies. Positions that all hold the mask must still come to different answers."""
    if "q_proj" in name or "k_proj" in name:
        return 2.0
    if "wte" in name or "embed" in name:
        return 0.5
    if name in ("lm_head.weight", "model.transformer.ff_out.weight"):
        return 2.0
    return 1.5


def _quieten(head: Tensor, mask: int, tokens: int) -> None:
    """Lower, in place, the rows of the head that training never asks for: the mask, and rows that no token owns."""
    head[mask] *= 0.125
    head[tokens:] *= 0.125


def _write_weights(folder: Path, weights: dict[str, Tensor], shards: int, single_file: bool) -> None:
    if single_file:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for i, names in enumerate(np.array_split(np.array(list(weights)), shards), start=1):
        file = f"model-{i:05}-of-{shards:05}.safetensors"
        save_file({str(n): weights[str(n)] for n in names}, folder / file, metadata={"format": "pt"})
        weight_map |= {str(n): file for n in names}
    total = sum(w.numel() * w.element_size() for w in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    _write_json(folder / "model.safetensors.index.json", index)


# Tokenizers.


def _llada_special(real_ids: bool) -> list[str]:
    """The added tokens in the order of their ids: all 269, or those with a name and a few reserved ones."""
    reserved = [f"<|reserved_token_{i}|>" for i in range(256)]
    reserved[252] = "<|mdm_mask|>"
    return [*_LLADA["first_tokens"], *(reserved if real_ids else reserved[250:254]), *_LLADA["last_tokens"]]


def _llada_tokenizer(folder: Path, ids: dict[str, int], base: int) -> None:
    vocabulary, merges = _byte_pairs(base)
    added = [{"id": i} | _added(token) for token, i in ids.items()]
    model = _LLADA["tokenizer"]["model"] | {"vocab": vocabulary, "merges": merges}
    _write_json(folder / "tokenizer.json", _LLADA["tokenizer"] | {"added_tokens": added, "model": model})
    decoder = {str(i): _added(token) for token, i in ids.items()}
    _write_json(folder / "tokenizer_config.json", _LLADA["tokenizer_config"] | {"added_tokens_decoder": decoder})
    named = {"bos": "<|startoftext|>", "cls": "[CLS]", "eos": "<|endoftext|>", "pad": "<|endoftext|>"}
    _write_json(folder / "special_tokens_map.json", _special_tokens_map(_LLADA["last_tokens"][:6], named))


def _dream_tokenizer(folder: Path, ids: dict[str, int], base: int) -> None:
    vocabulary, merges = _byte_pairs(base)
    _write_json(folder / "vocab.json", dict(sorted(vocabulary.items())))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    _write_json(folder / "added_tokens.json", dict(sorted(ids.items())))
    # Ordinary added tokens are not marked special, so that decoding keeps them.
    decoder = {str(i): _added(token, token not in _DREAM["ordinary_tokens"]) for token, i in ids.items()}
    _write_json(folder / "tokenizer_config.json", _DREAM["tokenizer_config"] | {"added_tokens_decoder": decoder})
    named = {"bos": "<|beginoftext|>", "eos": "<|endoftext|>", "mask": "<|mask|>", "pad": "<|endoftext|>"}
    _write_json(folder / "special_tokens_map.json", _special_tokens_map(["<|beginoftext|>", "<|mask|>"], named))


def _added(token: str, special: bool = True) -> dict[str, Any]:
    return {
        "content": token,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": special,
    }


def _special_tokens_map(additional: list[str], named: dict[str, str]) -> dict[str, Any]:
    def entry(token: str) -> dict[str, Any]:
        return {k: v for k, v in _added(token).items() if k != "special"}

    return {"additional_special_tokens": additional} | {f"{role}_token": entry(t) for role, t in named.items()}


def _byte_pairs(size: int) -> tuple[dict[str, int], list[str]]:
    """A byte-level vocabulary of that size and its merges: learnt from a text, then pairs of learnt pieces.

    Every entry after the 256 bytes has its merge, as in the published files.
    """
    letter = _byte_letters()
    pieces = dict.fromkeys(letter.values())
    if size < len(pieces) + 8:
        raise ValueError(f"{size} entries are too few for 256 bytes and some merges; use a larger vocab")
    words = Counter(re.findall(r" ?[^\W\d]+|\d| ?[^\s\w]+|\s+", _PUBLISHED["text"]))
    split = {word: [letter[b] for b in word.encode()] for word in words}
    merges = []
    for _ in range(min(size - len(pieces), 256)):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        first, second = min(pairs, key=lambda pair: (-pairs[pair], pair))
        pieces[first + second] = None
        merges.append(f"{first} {second}")
        for parts in split.values():
            for i in range(len(parts) - 1, 0, -1):
                if parts[i - 1 : i + 1] == [first, second]:
                    parts[i - 1 : i + 1] = [first + second]
    learnt = list(pieces)
    pairs_left = ((a, b) for a in learnt for b in learnt)
    while len(pieces) < size:
        first, second = next(pairs_left)
        if first + second not in pieces:
            pieces[first + second] = None
            merges.append(f"{first} {second}")
    return {piece: i for i, piece in enumerate(pieces)}, merges


def _byte_letters() -> dict[int, str]:
    """The printable character that stands for each byte in a byte-level vocabulary, in the order of their ids."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}


# Files.


def _made(folder: Path | str) -> Path:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (config | changes).items() if value is not ABSENT}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
