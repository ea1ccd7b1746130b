"""Where a checkpoint is: a folder, the local cache of the Hugging Face hub, or the hub itself.

Only weights, tokenizers and settings are fetched, never code and never pickles.
"""

import errno
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from unmask.base.errors import CheckpointError, HubError, require
from unmask.checkpoints.config import INDEX, SINGLE, read_json, weight_map
from unmask.checkpoints.shard_header import read_header

TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("vocab.txt",), ("tokenizer.model",))
"""What a tokenizer may consist of."""
SMALL = ("*.json", "merges.txt", "*.jinja", "vocab.txt", "*.model")
"""All that is fetched, apart from the weights the index names."""

OnProgress = Callable[[int, int], None]
"""Called with the bytes that have arrived and the bytes known to be coming; the second grows as files are begun."""


def locate(
    name_or_path: str,
    *,
    revision: str | None = None,
    offline: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Path:
    """The folder of a checkpoint, given as a folder or as a hub name such as "GSAI-ML/LLaDA-8B-Instruct".

    A complete copy in the local cache is used as it is, without asking the hub whether there is a newer one: the same
    name means the same weights until the copy is deleted, or a `revision` (branch, tag or commit) is named that is not
    there yet. A missing or partial copy is downloaded and checked. `offline` forbids that; None leaves it to the
    variable HF_HUB_OFFLINE. Where the cache is, which hub is asked and with which token is said by the hub's usual
    variables (HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN). Progress bars appear on a terminal, unless `on_progress`
    is given.
    """
    ok = isinstance(name_or_path, str | os.PathLike) and str(name_or_path) != ""
    require(ok, "model", name_or_path, "a folder, or a hub name such as org/name", "name a model")
    name = str(name_or_path)
    folder = Path(os.path.expanduser(name))
    if is_folder(folder):
        require(revision is None, "revision", revision, "None for a folder", "a folder has one version, leave it out")
        return folder
    _refuse_paths(name, folder)
    _check_revision(revision)
    local = cached(name, revision)
    if local is not None:
        return local
    if _offline() if offline is None else offline:
        raise HubError(
            f"{name} is not complete in the local cache {cache_folder()} (missing: {_left(name, revision)}), and "
            "downloads are off (offline=True or HF_HUB_OFFLINE); allowed: cached models; allow the network once, or "
            "name a folder"
        )
    return _fetch(name, revision, on_progress)


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; there is none under a name that the system cannot hold."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def cached(name: str, revision: str | None = None) -> Path | None:
    """The folder of a complete copy in the local cache, or None. Asks no network."""
    folder = _snapshot(name, revision)
    return None if folder is None or missing(folder) else folder


def at_hand(name_or_path: str, revision: str | None = None) -> Path | None:
    """What there is of a checkpoint on this machine, complete or not, or None. Asks no network."""
    folder = Path(os.path.expanduser(name_or_path))
    return folder if is_folder(folder) else _snapshot(name_or_path, revision)


def missing(folder: Path) -> list[str]:
    """The files that a checkpoint folder lacks or holds only in part: configuration, tokenizer, weights."""
    lacking = [] if _is_json(folder / "config.json") else ["config.json"]
    if not any(all(_is_filled(folder / file) for file in files) for files in TOKENIZERS):
        lacking += TOKENIZERS[0]
    try:
        shards = _shards(folder)
    except CheckpointError:
        return [*lacking, INDEX]
    return lacking + [shard for shard in shards if not _is_whole(folder / shard)]


def _shards(folder: Path) -> list[str]:
    """The files with the weights."""
    return sorted(set(weight_map(folder).values())) if (folder / INDEX).exists() else [SINGLE]


def _is_json(path: Path) -> bool:
    try:
        read_json(path)
    except CheckpointError:
        return False
    return True


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _is_whole(path: Path) -> bool:
    """Whether a safetensors file is as long as its own header says: a few kilobytes to read, whatever its size."""
    try:
        read_header(path)
    except CheckpointError:
        return False
    return True


# Names.


def _refuse_paths(name: str, folder: Path) -> None:
    """Go on only with what can be a hub name: a mistyped path should not be searched for on the net."""
    try:
        there = folder.exists()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"{_shortened(name)!r} cannot be a folder ({why}); allowed: the folder of a checkpoint, or a hub name such "
            "as org/name; check the path"
        ) from error
    if there:
        raise CheckpointError(f"{folder} is a file; allowed: the folder of a checkpoint; name the folder it is in")
    if name[0] in ".~/" or "\\" in name or name.count("/") > 1 or name.endswith("/"):
        raise CheckpointError(
            f"{_shortened(name)} does not exist; allowed: the folder of a checkpoint, or a hub name such as org/name; "
            "check the path"
        )
    part = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
    if not re.fullmatch(f"{part}/{part}", name) or "--" in name or ".." in name or len(name) > 96:
        raise CheckpointError(
            f"{_shortened(name)!r} is neither a folder nor a hub name; allowed: an existing folder, or org/name with "
            "letters, digits, '-', '_' and '.'; check the spelling"
        )


def _shortened(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:150]} ... ({len(name)} characters)"


def _check_revision(revision: str | None) -> None:
    named = isinstance(revision, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", revision)
    ok = revision is None or bool(named and ".." not in revision)
    require(ok, "revision", revision, "a branch, a tag or a commit", "leave it out for the newest")


# The local cache, laid out by huggingface_hub: refs/<revision> holds a commit, snapshots/<commit> its files.


def cache_folder() -> Path:
    """Where huggingface_hub keeps what it fetches."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(folder)))


def _snapshot(name: str, revision: str | None) -> Path | None:
    home = cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        commit = (home / "refs" / (revision or "main")).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = revision or ""
    folder = home / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def _left(name: str, revision: str | None) -> str:
    folder = _snapshot(name, revision)
    return "everything" if folder is None else ", ".join(missing(folder))


def _offline() -> bool:
    """The variables and the words that huggingface_hub knows, read now and not when it was imported."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.upper() in ("1", "ON", "YES", "TRUE")


# The hub.


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _fetch(name: str, revision: str | None, on_progress: OnProgress | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise HubError(
            f"{name} is not on this machine, and the package huggingface_hub that could fetch it is not installed; "
            "allowed: folders; run `pip install huggingface_hub`, or name a folder"
        ) from error
    bars = _bars(on_progress)

    def get(files: Sequence[str], version: str | None, again: bool = False) -> Path:
        return Path(
            snapshot_download(
                name,
                revision=version,
                cache_dir=cache_folder(),
                endpoint=_endpoint(),
                allow_patterns=list(files),
                ignore_patterns=["*/*"],  # other formats live in folders of their own
                force_download=again,
                tqdm_class=bars,
            )
        )

    with _explained(name, revision):
        # Small files first. The index then names the weights, and a copy with all of its weights is a copy with
        # everything: whatever interrupts a download, what `cached` accepts is whole.
        folder = get(SMALL, revision)
        broken = [file for file in missing(folder) if (folder / file).exists()]
        if broken:
            # Cut short after it had arrived, by a crash or a full disk: huggingface_hub still believes in it.
            get(broken, folder.name, again=True)
        _check_room(name, folder)
        get(_shards(folder), folder.name)
    lacking = missing(folder)
    if lacking:
        raise HubError(
            f"{name} was downloaded to {folder} but lacks {', '.join(lacking)}; allowed: models with config.json, "
            f"a tokenizer and safetensors weights; if {_endpoint()}/{name} has these files, try again"
        )
    return folder


def _check_room(name: str, folder: Path) -> None:
    """Refuse at once what would fail after an hour; an index that states no size is taken to fit."""
    index = read_json(folder / INDEX) if (folder / INDEX).exists() else {}
    about = index.get("metadata")
    size = about.get("total_size") if isinstance(about, dict) else None
    here = sum((folder / shard).stat().st_size for shard in _shards(folder) if _is_whole(folder / shard))
    free = shutil.disk_usage(folder).free
    if isinstance(size, int | float) and size - here > free:
        raise HubError(
            f"{name} needs {(size - here) / 1e9:.1f} GB more, but the disk of the cache {cache_folder()} has "
            f"{free / 1e9:.1f} GB left; allowed: room for all of it; make room, or set HF_HOME to a larger disk"
        )


@contextmanager
def _explained(name: str, revision: str | None) -> Iterator[None]:
    """Say what went wrong in a download and what to do."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # of huggingface_hub, of the HTTP package beneath it, of the file system
        raise HubError(_explanation(error, name, revision)) from error


def _explanation(error: Exception, name: str, revision: str | None) -> str:
    from huggingface_hub import errors

    page = f"{_endpoint()}/{name}"
    chain = list(_chain(error))
    numbers = {fault.errno for fault in chain if isinstance(fault, OSError)}
    status = {getattr(getattr(fault, "response", None), "status_code", None) for fault in chain}
    if numbers & {errno.ENOSPC, errno.EDQUOT}:
        return (
            f"the disk of the cache {cache_folder()} is full; allowed: room for the whole of {name}; make room "
            "(interrupted downloads leave *.incomplete files there), or set HF_HOME to a larger disk; finished files "
            "are kept"
        )
    if numbers & {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}:
        return f"the cache {cache_folder()} cannot be written ({error}); allowed: a folder of yours; set HF_HOME to one"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{page} is gated; allowed: accounts that its owners admitted; ask for access on that page, then run "
            "`hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"revision is {revision!r}, which {page} does not have; allowed: its branches, tags and commits; see there"
        )
    if isinstance(error, errors.RepositoryNotFoundError) or 401 in status:
        return (
            f"there is no folder {name} here, and the hub shows no model at {page}; allowed: public models, or private "
            "ones with a token; check the spelling, or run `hf auth login` or set HF_TOKEN"
        )
    cause = chain[-1]
    reason = f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}"
    return (
        f"there is no folder {name} here, and it could not be downloaded from {page} ({reason}); allowed: a folder, or "
        "a hub that answers; check the path, the network, proxy and HF_ENDPOINT, and try again: finished files are kept"
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it, the first cause last."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__


def _bars(on_progress: OnProgress | None) -> Any:
    """The hub's progress bars: on terminals only, or turned into calls of `on_progress`."""
    from huggingface_hub.utils import tqdm

    lock = Lock()
    arrived: dict[Any, int] = {}
    coming: dict[Any, int] = {}

    class DownloadBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # One of the bars counts the bytes of all files together.
            self._key = object() if kwargs.get("name") == "huggingface_hub.snapshot_download" else None
            if on_progress is not None or not sys.stderr.isatty():
                kwargs["disable"] = True
            super().__init__(*args, **kwargs)

        def update(self, n: float | None = 1) -> Any:
            if on_progress is not None and self._key is not None:
                with lock:
                    arrived[self._key] = arrived.get(self._key, 0) + int(n or 0)
                    coming[self._key] = int(self.total or 0)
                    on_progress(sum(arrived.values()), sum(coming.values()))
            return super().update(n)

    return DownloadBar
