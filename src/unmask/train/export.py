"""A trained network as a folder in the published format of its family, with a manifest."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import Tokenizer

from unmask import __version__
from unmask.atomic import atomic_folder, write_text
from unmask.denoisers.transformer import Spec, Transformer
from unmask.errors import CheckpointError, SchemaError
from unmask.models.checkpoints import DREAM, LLADA, MANIFEST, check_manifest, save_weights, sha256_of
from unmask.train.config import Config
from unmask.train.tokenizer import CHATS, Ids, files

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
NAMES = {family.name: family.names for family in (LLADA, DREAM)}


def export(
    model: Transformer, tokenizer: Tokenizer, config: Config, folder: Path, notes: dict[str, Any]
) -> dict[str, Any]:
    """Write the folder, complete or not at all, and return its manifest.

    `notes` are what the manifest says beyond files, versions and configuration. Nothing in it depends on the time.
    """
    ids = Ids.of(tokenizer, CHATS[config.model.family])
    settings, generation = _DOCUMENTS[config.model.family](model.spec, ids, config)
    with atomic_folder(folder) as partial:
        _write_json(partial / "config.json", settings)
        _write_json(partial / "generation_config.json", generation)
        for name, text in files(tokenizer, CHATS[config.model.family], config.model.context).items():
            write_text(partial / name, text)
        save_weights(model, NAMES[config.model.family], partial, dtype=DTYPES[config.run.export])
        manifest = {
            "files": {path.name: sha256_of(path) for path in sorted(partial.iterdir())},
            "parameters": model.spec.parameters,
            "config_sha256": config.digest,
            "config": config.flat(),
            "versions": versions(),
            **notes,
        }
        _write_json(partial / MANIFEST, manifest)
    return manifest


def finished(folder: Path) -> dict[str, Any] | None:
    """The manifest of an exported folder whose files are all as it says; None if there is none."""
    try:
        return check_manifest(folder)
    except CheckpointError as error:
        raise SchemaError(
            f"the finished run in {folder} cannot be used: {error}; or delete the folder {folder.name} in --out and "
            "run the same command: it goes on from the last checkpoint"
        ) from error


def versions() -> dict[str, str]:
    """What computed this."""
    return {
        "unmask": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


# config.json and generation_config.json with the published files' keys. No `auto_map`: there is no code to run.


def _llada(spec: Spec, ids: Ids, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    settings = {
        "activation_type": "silu",
        "alibi": False,
        "alibi_bias_max": 8.0,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "attention_layer_norm_with_affine": True,
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": spec.width,
        "embedding_dropout": 0.0,
        "embedding_size": spec.vocab,
        "eos_token_id": ids.eos,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "init_cutoff_factor": None,
        "init_device": "meta",
        "init_fn": "normal",
        "init_std": config.model.init_std,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": ids.mask,
        "max_sequence_length": config.model.context,
        "mlp_hidden_size": spec.mlp,
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": spec.heads,
        "n_kv_heads": spec.kv_heads,
        "n_layers": spec.layers,
        "pad_token_id": ids.eos,
        "precision": f"amp_{config.run.dtype}",
        "residual_dropout": 0.0,
        "rms_norm_eps": spec.eps,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": spec.theta,
        "scale_logits": False,
        "use_cache": False,
        "vocab_size": spec.vocab,
        "weight_tying": False,
    }
    generation = {"_from_model_config": True, "bos_token_id": ids.bos, "eos_token_id": ids.eos}
    return settings, generation


def _dream(spec: Spec, ids: Ids, config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    settings = {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "bos_token_id": ids.eos,
        "eos_token_id": ids.eos,
        "hidden_act": "silu",
        "hidden_size": spec.width,
        "initializer_range": config.model.init_std,
        "intermediate_size": spec.mlp,
        "mask_token_id": ids.mask,
        "max_position_embeddings": config.model.context,
        "max_window_layers": spec.layers,
        "model_type": "Dream",
        "num_attention_heads": spec.heads,
        "num_hidden_layers": spec.layers,
        "num_key_value_heads": spec.kv_heads,
        "pad_token_id": ids.eos,
        "rms_norm_eps": spec.eps,
        "rope_scaling": None,
        "rope_theta": spec.theta,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": str(DTYPES[config.run.export]).removeprefix("torch."),
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": spec.vocab,
    }
    generation = {
        "_from_model_config": True,
        "alg": "origin",
        "alg_temp": None,
        "bos_token_id": ids.eos,
        "eos_token_id": ids.eos,
        "eps": 0.001,
        "mask_token_id": None,
        "output_history": False,
        "pad_token_id": ids.eos,
        "steps": 512,
        "temperature": 0.0,
        "top_k": None,
        "top_p": None,
    }
    return settings, generation


_DOCUMENTS = {"llada": _llada, "dream": _dream}
