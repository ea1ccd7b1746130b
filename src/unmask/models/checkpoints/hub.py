"""Find a checkpoint: in a folder, in the local cache of the Hugging Face hub, or on the hub itself.

Only weights, tokenizers and settings are fetched, never code and never pickles. Cache, tokens, endpoint and the offline
switch are those of `huggingface_hub` (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE).
"""

import os
from collections.abc import Sequence
from pathlib import Path

from unmask.base.errors import CheckpointError, HubError, format_value, require
from unmask.models.checkpoints.weights import INDEX, list_weight_files

TOKENIZER_FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("vocab.txt",), ("tokenizer.model",))
"""Alternative sets of files, each of which makes a tokenizer."""
SMALL_FILES = ("*.json", "merges.txt", "*.jinja", "vocab.txt", "*.model")
"""Patterns of the files that are downloaded besides the weights."""


def resolve_path(name_or_path: str, revision: str | None = None, offline: bool = False) -> Path:
    """Return the folder of a checkpoint, given as a folder or as a hub name such as "GSAI-ML/LLaDA-8B-Instruct".

    A complete copy in the local cache is used as it is, without asking whether there is a newer one: the same name
    means the same weights until the copy is deleted, or a `revision` (branch, tag or commit) is named that is not there
    yet. A missing or partial copy is downloaded, unless `offline` forbids it.
    """
    ok = isinstance(name_or_path, str | os.PathLike) and str(name_or_path) != ""
    require(ok, "model", name_or_path, "a folder, or a hub name such as org/name", "name a model")
    name, folder = str(name_or_path), Path(os.path.expanduser(name_or_path))
    if os.path.isdir(folder):
        require(revision is None, "revision", revision, "None for a folder", "a folder has one version, leave it out")
        return folder
    if os.path.exists(folder):
        raise CheckpointError(f"{folder} is a file; allowed: the folder of a checkpoint; name the folder it is in")
    # A mistyped path must not be searched for on the hub.
    if name[0] in ".~/" or "\\" in name or name.count("/") > 1 or name.endswith("/"):
        raise CheckpointError(
            f"the folder {format_value(name)} does not exist; allowed: the folder of a checkpoint, or a hub name such "
            "as org/name; check the path"
        )
    from huggingface_hub import constants
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise CheckpointError(
            f"{format_value(name)} is neither a folder nor a hub name; allowed: an existing folder, or org/name with "
            "letters, digits, '-', '_' and '.'; check the spelling"
        ) from error
    # A complete copy is used without asking whether the hub has a newer one.
    local = find_local_copy(name, revision)
    lacking = None if local is None else find_missing_files(local)
    if local is not None and not lacking:
        return local
    if offline or constants.HF_HUB_OFFLINE:
        raise HubError(
            f"{name} is not complete in the local cache {constants.HF_HUB_CACHE} (missing: "
            f"{'everything' if lacking is None else ', '.join(lacking)}), and downloads are off (offline=True or "
            "HF_HUB_OFFLINE); allowed: cached models; allow the network once, or name a folder"
        )
    return _download(name, revision)


def find_local_copy(name_or_path: str, revision: str | None = None) -> Path | None:
    """Return the folder of a local copy, complete or not, without the network; None if there is none."""
    folder = Path(os.path.expanduser(name_or_path))
    if os.path.isdir(folder):
        return folder
    from huggingface_hub import snapshot_download

    try:
        # With all patterns, a copy that lacks some of its files would be reported as absent.
        return Path(
            snapshot_download(name_or_path, revision=revision, local_files_only=True, allow_patterns=["config.json"])
        )
    except (OSError, ValueError):
        return None


def is_cached(name: str) -> bool:
    """Tell whether a model can be loaded without the network."""
    folder = find_local_copy(name)
    return folder is not None and not find_missing_files(folder)


def find_missing_files(folder: Path) -> list[str]:
    """List the files that a checkpoint folder lacks: configuration, tokenizer, weights."""
    lacking = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any(all((folder / file).is_file() for file in files) for files in TOKENIZER_FILES):
        lacking += TOKENIZER_FILES[0]
    try:
        return lacking + [file for file in list_weight_files(folder) if not (folder / file).is_file()]
    except CheckpointError:
        return [*lacking, INDEX]


def _download(name: str, revision: str | None) -> Path:
    """Download a model into the hub's local cache; each failure becomes an error that says what to do."""
    from huggingface_hub import constants, errors, snapshot_download

    def fetch(patterns: Sequence[str], version: str | None) -> Path:
        # Files in folders of the repository are copies of the model in other formats.
        return Path(snapshot_download(name, revision=version, allow_patterns=list(patterns), ignore_patterns=["*/*"]))

    page = f"{constants.ENDPOINT}/{name}"
    try:
        # Small files first: the index names the weights, so that no second copy in another format is fetched.
        folder = fetch(SMALL_FILES, revision)
        fetch(list_weight_files(folder), folder.name)
    except errors.GatedRepoError as error:
        raise HubError(
            f"{page} is gated; allowed: accounts that its owners admitted; ask for access on that page, then run "
            "`hf auth login` or set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise HubError(
            f"revision is {revision!r}, which {page} does not have; allowed: its branches, tags and commits; see there"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise HubError(
            f"there is no folder {name} here, and the hub shows no model at {page}; allowed: public models, or private "
            "ones with a token; check the spelling, or run `hf auth login` or set HF_TOKEN"
        ) from error
    except CheckpointError:
        raise
    except Exception as error:  # of huggingface_hub, of the HTTP package beneath it, of the file system
        # The innermost error says what happened.
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (str(cause).splitlines() or [""])[0]
        raise HubError(
            f"there is no folder {name} here, and it could not be downloaded from {page} to {constants.HF_HUB_CACHE} "
            f"({type(cause).__name__}: {reason}); allowed: a folder, or a hub that answers and a disk with room; check "
            "the path, the network, HF_ENDPOINT and HF_HOME, and try again: finished files are kept"
        ) from error
    if lacking := find_missing_files(folder):
        raise HubError(
            f"{name} was downloaded to {folder} but lacks {', '.join(lacking)}; allowed: models with config.json, "
            f"a tokenizer and safetensors weights; if {page} has these files, try again"
        )
    return folder
