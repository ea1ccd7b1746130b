"""Checkpoints in the published format, for the tests of tokenizers, chat templates and codecs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.helpers.checkpoint_texts import FILES, PAIR_FILES, read
from tests.helpers.paths import GOLDEN
from unmask.models.checkpoints import TextCodec


@pytest.fixture(scope="session")
def folders(scaled: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("text")
    small = {"layers": 1, "heads": 2, "kv_heads": 2, "mlp": 8}
    return {
        "llada": scaled.llada(root / "llada"),
        "dream": scaled.dream(root / "dream"),
        "llada_real_ids": scaled.llada(root / "llada_real_ids", real_ids=True, d_model=8, **small),
        "dream_real_ids": scaled.dream(root / "dream_real_ids", real_ids=True, hidden=8, **small),
    }


@pytest.fixture(scope="session")
def codecs(scaled: ModuleType, folders: dict[str, Path]) -> dict[str, TextCodec]:
    return {name: read(folder, name.split("_")[0], scaled.special_ids(folder)) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((GOLDEN / "tokenizers.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint's tokenizer files, free to be spoilt."""

    def made(kind: str) -> Path:
        for name in FILES if kind == "llada" else PAIR_FILES:
            shutil.copy(folders[kind] / name, tmp_path / name)
        return tmp_path

    return made


GONE = object()


@pytest.fixture(scope="session")
def published(folders: dict[str, Path]) -> dict[str, Path]:
    """Whole checkpoints that nobody may change."""
    return {kind: folders[kind] for kind in ("llada", "dream")}


@pytest.fixture
def spoil(published: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """A whole checkpoint to spoil: `spoil("llada", alibi=True)` changes its config.json, GONE takes a key away."""

    def make(kind: str = "llada", **changes: Any) -> Path:
        folder = shutil.copytree(published[kind], tmp_path / kind, dirs_exist_ok=True)
        document = json.loads((published[kind] / "config.json").read_text()) | changes
        text = json.dumps({key: value for key, value in document.items() if value is not GONE})
        (folder / "config.json").write_text(text)
        return folder

    return make


@pytest.fixture
def gone() -> object:
    return GONE
