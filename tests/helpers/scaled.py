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
    config = _LLADA_CONFIG | {
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
    rows, base = (152064, 151643) if real_ids else (vocab, vocab - SPARE_ROWS - len(_DREAM_SPECIAL))
    ids = {token: base + i for i, token in enumerate(_DREAM_SPECIAL)}
    eos = ids["<|endoftext|>"]
    # bos is <|beginoftext|> for the tokenizer and <|endoftext|> here, as published.
    config = _DREAM_CONFIG | {
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
    generation = _DREAM_GENERATION | {"bos_token_id": eos, "eos_token_id": eos, "pad_token_id": eos}
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
    return [*_LLADA_FIRST, *(reserved if real_ids else reserved[250:254]), *_LLADA_LAST]


def _llada_tokenizer(folder: Path, ids: dict[str, int], base: int) -> None:
    vocabulary, merges = _byte_pairs(base)
    split = {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i} | _added(token) for token, i in ids.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
    _write_json(folder / "tokenizer.json", tokenizer)
    additional = _LLADA_LAST[:6]
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": {str(i): _added(token) for token, i in ids.items()},
        "additional_special_tokens": additional,
        "bos_token": "<|startoftext|>",
        "chat_template": LLADA_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "cls_token": "[CLS]",
        "eos_token": "<|endoftext|>",
        "fast_tokenizer": True,
        "gmask_token": "[gMASK]",
        "merges_file": None,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "trust_remote_code": True,
        "vocab_file": None,
    }
    _write_json(folder / "tokenizer_config.json", settings)
    named = {"bos": "<|startoftext|>", "cls": "[CLS]", "eos": "<|endoftext|>", "pad": "<|endoftext|>"}
    _write_json(folder / "special_tokens_map.json", _special_tokens_map(additional, named))


def _dream_tokenizer(folder: Path, ids: dict[str, int], base: int) -> None:
    vocabulary, merges = _byte_pairs(base)
    _write_json(folder / "vocab.json", dict(sorted(vocabulary.items())))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    _write_json(folder / "added_tokens.json", dict(sorted(ids.items())))
    additional = ["<|beginoftext|>", "<|mask|>"]
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): _added(token, token not in _DREAM_ORDINARY) for token, i in ids.items()},
        "additional_special_tokens": additional,
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "bos_token": "<|beginoftext|>",
        "chat_template": DREAM_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "errors": "replace",
        "mask_token": "<|mask|>",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "DreamTokenizer",
        "unk_token": None,
    }
    _write_json(folder / "tokenizer_config.json", settings)
    named = {"bos": "<|beginoftext|>", "eos": "<|endoftext|>", "mask": "<|mask|>", "pad": "<|endoftext|>"}
    _write_json(folder / "special_tokens_map.json", _special_tokens_map(additional, named))


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
    """A byte-level vocabulary of that size and its merges: learnt from `_TEXT`, then pairs of learnt pieces.

    Every entry after the 256 bytes has its merge, as in the published files.
    """
    letter = _byte_letters()
    pieces = dict.fromkeys(letter.values())
    if size < len(pieces) + 8:
        raise ValueError(f"{size} entries are too few for 256 bytes and some merges; use a larger vocab")
    words = Counter(re.findall(r" ?[^\W\d]+|\d| ?[^\s\w]+|\s+", _TEXT))
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


# What the published folders say.

_LLADA_CONFIG = {
    "activation_type": "silu",
    "alibi": False,
    "alibi_bias_max": 8.0,
    "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "auto_map": {
        "AutoConfig": "configuration_llada.LLaDAConfig",
        "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        "AutoModel": "modeling_llada.LLaDAModelLM",
    },
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 4096,
    "embedding_dropout": 0.0,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "mlp_ratio": 4,
    "model_type": "llada",
    "multi_query_attention": None,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "transformers_version": "4.46.3",
    "use_cache": False,
    "vocab_size": 126464,
    "weight_tying": False,
}

_DREAM_CONFIG = {
    "_name_or_path": "Dream-org/Dream-v0-Instruct-7B",
    "architectures": ["DreamModel"],
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_dream.DreamConfig", "AutoModel": "modeling_dream.DreamModel"},
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "mask_token_id": 151666,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "Dream",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "pad_token_id": 151643,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.46.2",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}

_DREAM_GENERATION = {
    "_from_model_config": True,
    "alg": "origin",
    "alg_temp": None,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "eps": 0.001,
    "mask_token_id": None,
    "output_history": False,
    "pad_token_id": 151643,
    "steps": 512,
    "temperature": 0.0,
    "top_k": None,
    "top_p": None,
    "transformers_version": "4.46.2",
}

_LLADA_FIRST = ["<|startoftext|>", "<|endoftext|>", "[CLS]", "[gMASK]"]

_LLADA_LAST = [
    "<role>",
    "</role>",
    "<|arithmetic_start|>",
    "<|arithmetic_end|>",
    "<|number_start|>",
    "<|number_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]

_DREAM_ORDINARY = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
]
"""Added tokens that are not marked special, so that decoding keeps them."""

_DREAM_SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    *_DREAM_ORDINARY,
    "<|beginoftext|>",
    "<|mask|>",
]

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

LLADA_TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)

# A long line goes on after the sign ↩.
DREAM_TEMPLATE = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided ↩
with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within ↩
<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": ↩
<args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == ↩
"assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""".replace("↩\n", "")

_TEXT = """
Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips did
Natalia sell altogether in April and May? She sold 48/2 = 24 clips in May. The answer is 72.
Let's think step by step: first, find the number of hours; then multiply by the rate. It's 3 + 4 * (5 - 2) = 15.
If x = 7 and y = 9, what is the value of x^2 + y? We'll write 49 + 9 = 58, so the final answer is \\boxed{58}.

def add(numbers):
    total = 0
    for number in numbers:
        if number > 0:
            total += number
    return total

The quick brown fox jumps over the lazy dog; the dog doesn't mind. "Where are they now?" I'm asking you, she's not
here. Each of the masked tokens is revealed in some order, and the order matters: easy ones first, or left to right.
L'été à la façade, naïve café, über die Straße, señor. 你好，世界。Привет, мир!
"""
