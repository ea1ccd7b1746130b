"""Finding checkpoints: folders, the cache, and a hub that fails in every way we could think of."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers import fakehub
from tests.helpers.fresh_python import environment, fresh_python
from unmask.base.errors import CheckpointError, ConfigError, HubError
from unmask.checkpoints.hub import cached, locate, missing

pytest.importorskip("huggingface_hub")

NAME = "org/tiny-1.0"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def shard(name: str, size: int = 50_000) -> bytes:
    """A safetensors file with one tensor of bytes."""
    header = json.dumps(
        {name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "__metadata__": {}}
    ).encode()
    return len(header).to_bytes(8, "little") + header + bytes(i % 251 for i in range(size))


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
        SHARDS[0]: shard("a"),
        SHARDS[1]: shard("b"),
    }
    return {name: content for name, content in (files | changes).items() if content is not None}


WANTED = set(tiny()) - {"README.md", "modeling_tiny.py", "onnx/config.json", "pytorch_model.bin"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a huggingface_hub that does not wait between its attempts."""
    from huggingface_hub import constants

    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "no_harnesses"), raising=False)
    hasty = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})
    for module in ("file_download", "utils._http"):
        monkeypatch.setattr(f"huggingface_hub.{module}.time", hasty)
    return tmp_path / "home"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> "Iterator[fakehub.FakeHub]":
    served = fakehub.FakeHub({NAME: fakehub.Repo({"main": tiny()})})
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    yield served
    served.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Folders and names.


def test_a_folder_is_taken_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate(str(tmp_path / "org")) == tmp_path / "org"
    assert locate("org/name") == Path("org/name")
    assert locate("~/org") == tmp_path / "org"


def test_a_folder_has_no_revision(tmp_path):
    with pytest.raises(ConfigError, match="revision is 'v1'; allowed: None for a folder"):
        locate(str(tmp_path), revision="v1")


@pytest.mark.parametrize("path", ["./no", "/no/where", "~/no/where", "a/b/c", "../x", "models/x/", "C:\\models\\x"])
def test_a_path_that_does_not_exist(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist; allowed: the folder of a checkpoint") as refused:
        locate(path)
    assert str(refused.value).startswith(path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is a file; .*name the folder"):
        locate(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    "name", ["llada", "org/na me", "org/name\n", "org/-x", "a--b/c", "org/x..y", "org/" + "x" * 99]
)
def test_what_cannot_be_a_name_is_not_searched_for(name, hub):
    with pytest.raises(CheckpointError, match="is neither a folder nor a hub name"):
        locate(name)
    assert hub.asked == []


@pytest.mark.parametrize("name", ["", None, 3])
def test_nothing_is_no_name(name):
    with pytest.raises(ConfigError, match=f"model is {name!r}; allowed: a folder, or a hub name"):
        locate(name)


@pytest.mark.parametrize("revision", ["../main", "", "/etc", "a b"])
def test_a_revision_is_no_path(revision, hub):
    with pytest.raises(ConfigError, match="allowed: a branch, a tag or a commit"):
        locate(NAME, revision=revision)
    assert hub.asked == []


# What works.


def test_download_brings_what_is_needed_and_no_code(hub, home, capfd):
    assert cached(NAME) is None
    folder = locate(NAME)
    assert contents(folder) == {name: content for name, content in tiny().items() if name in WANTED}
    assert folder.is_relative_to(home / "hub")
    assert folder.name == hub.repos[NAME].commit("main")
    assert not any(b"pickle" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert capfd.readouterr().err == ""


def test_a_complete_copy_needs_no_network(hub, monkeypatch):
    folder = locate(NAME)
    questions = len(hub.asked)
    assert locate(NAME) == cached(NAME) == folder
    assert len(hub.asked) == questions
    hub.close()
    assert locate(NAME) == folder
    assert locate(NAME, offline=True) == folder
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert locate(NAME) == folder


def test_a_newer_version_on_the_hub_does_not_change_a_copy(hub):
    folder = locate(NAME)
    hub.repos[NAME].revisions["main"] = tiny(**{"config.json": b'{"model_type": "other"}'})
    assert locate(NAME) == folder


def test_revisions_lie_side_by_side(hub):
    other = tiny(**{"config.json": b'{"model_type": "Dream"}', SHARDS[0]: shard("a", 7)})
    hub.repos[NAME].revisions["v2"] = other
    first, second = locate(NAME), locate(NAME, revision="v2")
    assert first != second
    assert contents(second)[SHARDS[0]] == other[SHARDS[0]]
    assert cached(NAME, "v2") == cached(NAME, second.name) == locate(NAME, revision=second.name) == second
    assert cached(NAME) == first
    assert cached(NAME, "v3") is None


def test_a_commit_by_its_number(hub):
    commit = hub.repos[NAME].commit("main")
    folder = locate(NAME, revision=commit)
    assert folder.name == commit
    assert cached(NAME, commit) == folder
    assert cached(NAME) is None


def test_weights_in_one_file(hub):
    single = tiny(**{"model.safetensors.index.json": None, SHARDS[0]: None, "model.safetensors": shard("a")})
    hub.repos[NAME].revisions["main"] = single
    folder = locate(NAME)
    assert "model.safetensors" in contents(folder)
    assert SHARDS[1] not in contents(folder)


def test_progress_is_told_in_bytes(hub, capfd):
    told: list[tuple[int, int]] = []
    folder = locate(NAME, on_progress=lambda done, total: told.append((done, total)))
    size = sum(map(len, contents(folder).values()))
    assert told[-1] == (size, size)
    assert all(done <= total for done, total in told)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
def test_the_cache_can_be_elsewhere(variable, hub, home, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert locate(NAME).is_relative_to(tmp_path / "elsewhere")
    monkeypatch.delenv(variable)
    assert cached(NAME) is None


def test_looking_into_the_cache_loads_neither_torch_nor_the_hub():
    code = (
        "import sys; from unmask.checkpoints.hub import cached; cached('org/name');"
        "print([m for m in ('torch', 'huggingface_hub') if m in sys.modules])"
    )
    run = fresh_python(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"


# What the hub refuses.


def test_a_model_that_is_not_there(hub):
    with pytest.raises(HubError, match=r"no folder org/none here, and the hub shows no model at .*HF_TOKEN"):
        locate("org/none")
    assert cached("org/none") is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model(status, hub):
    hub.repos[NAME] = fakehub.Repo({"main": tiny()}, status=status, error_code="GatedRepo")
    with pytest.raises(HubError, match=rf"{hub.url}/{NAME} is gated; .*hf auth login"):
        locate(NAME)


def test_a_gated_model_with_a_token(hub, monkeypatch):
    hub.repos[NAME].token = "hf_secret"
    with pytest.raises(HubError, match="is gated"):
        locate(NAME)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert missing(locate(NAME)) == []
    assert hub.tokens == {"hf_secret"}


def test_an_unknown_revision(hub):
    with pytest.raises(HubError, match=r"revision is 'v9', which .*org/tiny-1\.0 does not have"):
        locate(NAME, revision="v9")


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_hub_in_trouble(status, hub):
    hub.repos[NAME].status = status
    with pytest.raises(HubError, match=rf"could not be downloaded .*{status}.*try again"):
        locate(NAME)


def test_no_network(hub):
    hub.close()
    with pytest.raises(HubError, match=r"could not be downloaded .*check the path, the network, proxy and HF_ENDPOINT"):
        locate(NAME)


def test_a_server_that_is_no_hub(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url + "/somewhere/else")
    with pytest.raises(HubError, match="somewhere/else"):
        locate(NAME)


def test_offline_and_not_there(hub, monkeypatch):
    with pytest.raises(HubError, match=r"missing: everything\), and downloads are off"):
        locate(NAME, offline=True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        locate(NAME)
    assert hub.asked == []


def test_without_the_package(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match="pip install huggingface_hub"):
        locate(NAME)


# What is not whole.


@pytest.mark.parametrize(
    "content",
    [b"", b"\x02", b"\x02" + bytes(7), b"\x02" + bytes(7) + b"[]", b"\xff" * 8, shard("a")[:-1], shard("a") + b"x"],
)
def test_what_is_no_safetensors_file(content, tmp_path):
    for name, good in tiny().items():
        if "/" not in name:
            (tmp_path / name).write_bytes(good)
    assert missing(tmp_path) == []
    (tmp_path / SHARDS[0]).write_bytes(content)
    assert missing(tmp_path) == [SHARDS[0]]


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (SHARDS[1], SHARDS[1]),
        ("config.json", r"config\.json"),
        ("tokenizer.json", r"tokenizer\.json"),
        ("model.safetensors.index.json", r"model\.safetensors"),
    ],
)
def test_a_model_that_lacks_a_file_on_the_hub(lost, named, hub):
    hub.repos[NAME].revisions["main"] = tiny(**{lost: None})
    for _ in range(2):
        with pytest.raises(HubError, match=rf"was downloaded to .* but lacks {named}"):
            locate(NAME)
        assert cached(NAME) is None


@pytest.mark.parametrize("file", ["../../x.safetensors", "weights.bin", 3])
def test_an_index_that_points_elsewhere(file, hub):
    index = json.dumps({"weight_map": {"a": file}}).encode()
    hub.repos[NAME].revisions["main"] = tiny(**{"model.safetensors.index.json": index})
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json has no usable 'weight_map'"):
        locate(NAME)
    assert cached(NAME) is None


@pytest.mark.parametrize(
    ("file", "keep"),
    # What is inside a tokenizer.json is its reader's business.
    [(file, keep) for file in [*SHARDS, "config.json", "model.safetensors.index.json"] for keep in (0, 20)]
    + [("tokenizer.json", 0)],
)
def test_a_file_cut_short_in_the_cache_is_fetched_again(file, keep, hub):
    folder = locate(NAME)
    whole = contents(folder)
    blob = (folder / file).resolve()
    blob.chmod(0o644)
    blob.write_bytes(whole[file][:keep])
    assert missing(folder) == [file]
    assert cached(NAME) is None
    with pytest.raises(HubError, match=rf"missing: {file}"):
        locate(NAME, offline=True)
    assert contents(locate(NAME)) == whole
    assert [hub.downloads(name) for name in SHARDS] == [1 + (file == name) for name in SHARDS]


def test_a_cut_connection_is_taken_up_again(hub):
    hub.cut = {SHARDS[0]: 1}
    assert contents(locate(NAME))[SHARDS[0]] == tiny()[SHARDS[0]]


def test_a_connection_that_stays_cut(hub):
    hub.cut = {SHARDS[0]: 1000}
    with pytest.raises(HubError, match=r"could not be downloaded .*finished files are kept"):
        locate(NAME)
    assert cached(NAME) is None
    with pytest.raises(HubError, match=rf"missing: .*{SHARDS[0]}"):
        locate(NAME, offline=True)
    hub.cut = {}
    folder = locate(NAME)
    assert {name: contents(folder)[name] for name in WANTED} == {name: tiny()[name] for name in WANTED}
    assert hub.downloads(SHARDS[1]) == 1


def test_a_killed_download(hub, home):
    hub.hold = {SHARDS[1]}
    code = f"from unmask.checkpoints.hub import locate; locate({NAME!r})"
    env = environment(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1")
    run = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert hub.held.wait(30)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    hub.hold = set()
    hub.let_go.set()
    # Partial files stay behind, under names nobody trusts.
    assert list(home.rglob("*.incomplete"))
    assert cached(NAME) is None
    with pytest.raises(HubError, match=rf"missing: .*{SHARDS[1]}"):
        locate(NAME, offline=True)
    folder = locate(NAME)
    assert {name: contents(folder)[name] for name in WANTED} == {name: tiny()[name] for name in WANTED}
    assert cached(NAME) == folder


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up(number, hub, home, monkeypatch):
    def full(*_args: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("huggingface_hub.file_download.http_get", full)
        with pytest.raises(HubError, match=rf"{home}/hub is full; .*HF_HOME"):
            locate(NAME)
    assert cached(NAME) is None
    assert missing(locate(NAME)) == []


def test_a_disk_without_room_is_refused_before_the_download(hub, home, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(HubError, match=rf"needs 0\.0 GB more, but the disk of the cache {home}/hub has 0\.0 GB left"):
        locate(NAME)
    assert hub.downloads(SHARDS[0]) == 0


def test_a_cache_that_cannot_be_written(hub, home):
    home.write_text("a file where the cache should be")
    with pytest.raises(HubError, match=rf"the cache {home}/hub cannot be written"):
        locate(NAME)


def test_ctrl_c_stays_ctrl_c(hub, monkeypatch):
    def stopped(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("huggingface_hub.snapshot_download", stopped)
    with pytest.raises(KeyboardInterrupt):
        locate(NAME)
