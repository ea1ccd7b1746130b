"""Finding checkpoints: folders, the cache of huggingface_hub, and a hub that fails."""

import functools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from tests.helpers import fakehub
from unmask.base.errors import CheckpointError, ConfigError, HubError
from unmask.models.checkpoints.hub import find_local_copy, find_missing_files, is_cached, resolve_path

NAME = "org/tiny-1.0"
INDEX = "model.safetensors.index.json"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def tiny(**changes: bytes | None) -> dict[str, bytes]:
    """A model's files on the hub; a change of None leaves one out."""
    index = {"metadata": {"total_size": 100_000}, "weight_map": {"a": SHARDS[0], "b": SHARDS[1], "c": SHARDS[1]}}
    files = {
        "README.md": b"# Tiny",
        "config.json": b'{"model_type": "llada"}',
        "modeling_tiny.py": b"raise SystemExit('code of a checkpoint was run')",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "onnx/config.json": b"{}",
        "pytorch_model.bin": b"a pickle",
        "tokenizer.json": b"{}",
        "chat_template.jinja": b"{{ messages }}",
        SHARDS[0]: b"a" * 50_000,
        SHARDS[1]: b"b" * 50_000,
    }
    return {name: content for name, content in (files | changes).items() if content is not None}


WANTED = set(tiny()) - {"README.md", "modeling_tiny.py", "onnx/config.json", "pytorch_model.bin"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a huggingface_hub that does not wait between its attempts."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "no_harnesses"), raising=False)
    hasty = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})
    for module in ("file_download", "utils._http"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", hasty)
    return tmp_path / "hub"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[fakehub.FakeHub]":
    served = fakehub.FakeHub({NAME: fakehub.Repo({"main": tiny()})})
    # The real address is read where huggingface_hub is imported.
    real = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", functools.partial(real, endpoint=served.url))
    monkeypatch.setattr(constants, "ENDPOINT", served.url)
    template = served.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield served
    served.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Folders and names.


def test_folder_is_used_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_path(str(tmp_path / "org")) == find_local_copy(str(tmp_path / "org")) == tmp_path / "org"
    assert resolve_path("org/name") == Path("org/name")
    assert resolve_path("~/org") == tmp_path / "org"
    with pytest.raises(ConfigError, match="revision is 'v1'; allowed: None for a folder"):
        resolve_path(str(tmp_path), revision="v1")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        *((name, CheckpointError, "does not exist") for name in ("./no", "/no", "~/no", "a/b/c", "m/x/", "C:\\m")),
        *(
            (name, CheckpointError, "neither a folder nor a hub name")
            for name in ("org/na me", "org/-x", "org/x..y", "org/x\n", "a--b/c", "org/" + "x" * 99)
        ),
        *((name, ConfigError, "model is .*; allowed: a folder, or a hub name") for name in ("", None, 3)),
        (__file__, CheckpointError, r"test_hub\.py is a file; .*name the folder"),
    ],
)
def test_impossible_names_are_not_searched_for(name, error, message, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        resolve_path(name)
    assert hub.asked == []


# What works.


def test_download_fetches_data_and_no_code(hub, home):
    assert find_local_copy(NAME) is None
    folder = resolve_path(NAME)
    assert contents(folder) == {name: content for name, content in tiny().items() if name in WANTED}
    assert folder.is_relative_to(home)
    assert not any(b"pickle" in path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_complete_copy_needs_no_network(hub, monkeypatch):
    folder = resolve_path(NAME)
    hub.repos[NAME].revisions["main"] = tiny(**{"config.json": b'{"model_type": "other"}'})
    questions = len(hub.asked)
    assert resolve_path(NAME) == resolve_path(NAME, offline=True) == folder
    assert is_cached(NAME)
    assert len(hub.asked) == questions
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve_path(NAME) == folder


def test_gated_model_needs_a_token(hub, monkeypatch):
    hub.repos[NAME].token = "hf_secret"
    with pytest.raises(HubError, match=rf"{hub.url}/{NAME} is gated; .*hf auth login"):
        resolve_path(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert find_missing_files(resolve_path(NAME)) == []
    assert hub.tokens == {"hf_secret"}


# What the hub refuses, and what is not whole.


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, "could not be downloaded .*403.*try again"),
        (503, "could not be downloaded .*503.*try again"),
        (None, "could not be downloaded .*check the path, the network, HF_ENDPOINT"),
    ],
)
def test_failing_hub_is_named(status, message, hub):
    if status is None:
        hub.close()
    hub.repos[NAME].status = status
    with pytest.raises(HubError, match=message):
        resolve_path(NAME)


def test_unknown_models_and_revisions_are_named(hub):
    with pytest.raises(HubError, match=r"no folder org/none here, and the hub shows no model at .*HF_TOKEN"):
        resolve_path("org/none")
    with pytest.raises(HubError, match=r"revision is 'v9', which .*org/tiny-1\.0 does not have"):
        resolve_path(NAME, "v9")


def test_offline_refuses_missing_models(hub, monkeypatch):
    with pytest.raises(HubError, match=r"missing: everything\), and downloads are off"):
        resolve_path(NAME, offline=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        resolve_path(NAME)
    assert hub.asked == []


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({SHARDS[1]: None}, HubError, rf"was downloaded to .* but lacks {SHARDS[1]}"),
        ({"tokenizer.json": None}, HubError, r"was downloaded to .* but lacks tokenizer\.json"),
        *(
            ({INDEX: json.dumps({"weight_map": {"a": file}}).encode()}, CheckpointError, "has no usable 'weight_map'")
            for file in ("../../x.safetensors", "weights.bin", 3)
        ),
    ],
)
def test_incomplete_models_on_the_hub_are_refused(changes, error, message, hub):
    hub.repos[NAME].revisions["main"] = tiny(**changes)
    with pytest.raises(error, match=message):
        resolve_path(NAME)
    assert not is_cached(NAME)


def test_interrupted_download_is_completed(hub):
    """Finished files are kept; a copy without all files of its index is not used."""
    hub.cut = {SHARDS[0]: 1000}
    with pytest.raises(HubError, match=r"could not be downloaded .*finished files are kept"):
        resolve_path(NAME)
    assert find_local_copy(NAME) is not None
    assert not is_cached(NAME)
    with pytest.raises(HubError, match=rf"missing: .*{SHARDS[0]}"):
        resolve_path(NAME, offline=True)
    hub.cut = {}
    folder = resolve_path(NAME)
    assert {name: contents(folder)[name] for name in WANTED} == {name: tiny()[name] for name in WANTED}
    assert hub.downloads(SHARDS[1]) == 1
