"""Export a trained network as a folder in the published format of its family, with a manifest."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import Tokenizer

from unmask import __version__
from unmask.base.errors import CheckpointError, SchemaError
from unmask.base.files import atomic_folder, write_text
from unmask.models import Transformer
from unmask.models.checkpoints import DREAM, LLADA, MANIFEST, check_manifest, hash_file, save_weights
from unmask.train.config import TrainConfig
from unmask.train.tokenizer import CHATS, ControlIds, make_tokenizer_files

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
TENSOR_NAMES = {family.name: family.names for family in (LLADA, DREAM)}
TEMPLATES = Path(__file__).with_name("export_templates.json")
"""`config.json` and `generation_config.json` of each family with the published files' keys, in their order.

Values such as "{width}" are filled in. There is no `auto_map`, because there is no code to run.
"""


def export_model(
    model: Transformer, tokenizer: Tokenizer, config: TrainConfig, folder: Path, notes: dict[str, Any]
) -> dict[str, Any]:
    """Write a trained model as a folder in its family's format, and return the folder's manifest.

    The folder is written completely or not at all. `notes` are added to the manifest, which also has files, versions
    and the configuration, but no times and no paths: two equal runs have the same manifest.
    """
    family, chat, spec = config.model.family, CHATS[config.model.family], model.spec
    ids = ControlIds.of(tokenizer, chat)
    values = {
        "width": spec.width,
        "layers": spec.layers,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "mlp": spec.mlp,
        "vocab": spec.vocab,
        "theta": spec.theta,
        "norm_eps": spec.eps,
        "init_std": config.model.init_std,
        "context": config.model.context,
        "bos": ids.bos,
        "eos": ids.eos,
        "mask": ids.mask,
        "precision": f"amp_{config.run.dtype}",
        "export_dtype": str(DTYPES[config.run.export]).removeprefix("torch."),
    }
    # Whole values only, so that a brace inside a text stays as it is.
    filled = {f"{{{name}}}": value for name, value in values.items()}
    with atomic_folder(folder) as partial:
        for name, template in json.loads(TEMPLATES.read_text(encoding="utf-8"))[family].items():
            document = {k: filled.get(v, v) if isinstance(v, str) else v for k, v in template.items()}
            _write_json(partial / f"{name}.json", document)
        for name, text in make_tokenizer_files(tokenizer, chat, config.model.context).items():
            write_text(partial / name, text)
        # Stacked matrices are stored under the published names of their parts, which transformers and the authors read.
        save_weights(model, TENSOR_NAMES[family], partial, dtype=DTYPES[config.run.export])
        # Written last, because it lists every other file with its hash.
        manifest = {
            "files": {path.name: hash_file(path) for path in sorted(partial.iterdir())},
            "parameters": spec.parameters,
            "config_sha256": config.digest,
            "config": config.flatten(),
            "versions": library_versions(),
            **notes,
        }
        _write_json(partial / MANIFEST, manifest)
    return manifest


def read_export(folder: Path) -> dict[str, Any] | None:
    """Read the manifest of an exported folder, and check every file against it; return None if there is no export."""
    try:
        return check_manifest(folder)
    except CheckpointError as error:
        raise SchemaError(
            f"the finished run in {folder} cannot be used: {error}; or delete the folder {folder.name} in --out and "
            "run the same command: it goes on from the last checkpoint"
        ) from error


def library_versions() -> dict[str, str]:
    """Return the versions of Python, unmask, torch and other libraries, as results record them."""
    return {
        "unmask": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "tokenizers": tokenizers.__version__,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
