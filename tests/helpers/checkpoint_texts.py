"""What the tests of tokenizers, chat templates and codecs share: which files there are, and how they are read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unmask.models.checkpoints import TextCodec

ROWS = 512
FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
PAIR_FILES = ("vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
MASK = {"llada": "<|mdm_mask|>", "dream": "<|mask|>"}
ENDS = {"llada": ("<|endoftext|>", "<|eot_id|>"), "dream": ("<|endoftext|>", "<|im_end|>")}

KINDS = pytest.mark.parametrize("kind", ["llada", "dream"])
VARIANTS = pytest.mark.parametrize("name", ["llada", "dream", "llada_real_ids", "dream_real_ids"])


def read(folder: Path, kind: str, ids: dict[str, int], **options: Any) -> TextCodec:
    vocab = (
        json.loads((folder / "config.json").read_text())["vocab_size"] if (folder / "config.json").exists() else ROWS
    )
    return TextCodec.read(folder, **{"mask_id": ids[MASK[kind]], "vocab": vocab, "ends": ENDS[kind]} | options)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
