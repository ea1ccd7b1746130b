"""A tiny network, a study of it, an uninterrupted run and a task of one's own, for all tests of the laboratory."""

import json
import sys

import pytest

from tests.helpers.made_once import made_once
from tests.helpers.method_studies import raw, spell_and_score_by_hash
from tests.helpers.object_store import served
from tests.helpers.own_tasks import LINES, SCORER
from tests.helpers.tiny_studies import SMALL, table
from unmask.api.load import load
from unmask.lab.store import Store
from unmask.lab.study import StudyConfig
from unmask.lab.study.protocol import run_study
from unmask.tasks import own_task


@pytest.fixture(scope="session")
def tiny_folder(scaled, tmp_path_factory):
    return made_once(tmp_path_factory, "tiny-llada", lambda folder: scaled.llada(folder, **SMALL))


@pytest.fixture(scope="session")
def tiny_model(tiny_folder):
    return load(str(tiny_folder), device="cpu", dtype="fp32")


@pytest.fixture(scope="session")
def tiny_load(tiny_model):
    """What a study loads its model with."""
    return lambda spec: tiny_model


@pytest.fixture(scope="session")
def tiny_study(tiny_folder):
    return StudyConfig.parse(table(models__0__model=str(tiny_folder)))


@pytest.fixture(scope="session")
def tiny_run(tiny_study, tiny_load, tmp_path_factory):
    """An uninterrupted run; to be read only."""

    def make(folder):
        assert run_study(tiny_study, Store.create(folder, tiny_study.config), tiny_load).complete

    return Store.open(made_once(tmp_path_factory, "tiny-run", make))


@pytest.fixture(scope="session")
def methods_study(tiny_folder):
    """The policy axis alone."""
    return StudyConfig.parse(raw(tiny_folder))


@pytest.fixture(scope="session")
def methods_run(methods_study, tiny_load, tmp_path_factory):
    """An uninterrupted run of it; to be read only."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            spell_and_score_by_hash(patch)
            assert run_study(methods_study, Store.create(folder, methods_study.config), tiny_load).complete

    return Store.open(made_once(tmp_path_factory, "methods-run", make))


@pytest.fixture
def prompt_file(tmp_path):
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    return tmp_path / "mine.jsonl"


@pytest.fixture
def task(prompt_file):
    return own_task("mine", str(prompt_file), scorer="contains", max_new_tokens=6)


@pytest.fixture
def scorer(tmp_path, monkeypatch):
    """A scoring function in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(mode):
        name = f"scorer_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(SCORER.replace("NAMED", mode), encoding="utf-8")
        sys.modules.pop(name, None)
        return f"{name}:score"

    return call


@pytest.fixture(scope="session")
def object_store():
    """A server that speaks as Amazon S3 does."""
    with served() as store:
        yield store


@pytest.fixture
def bucket(object_store, monkeypatch, tmp_path):
    """A new bucket of it, and the environment to reach it."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return object_store.bucket()
