"""`unmask demo` as a user types it, on a study that takes a second."""

import shutil
from pathlib import Path

import pytest

from tests.helpers import tiny_demo
from unmask.cli.app import main
from unmask.lab.store import Store
from unmask.lab.store.manifest import write_manifest
from unmask.lab.study import protocol

QUICK = ("--problems", "1", "--seeds", "2", "--study", "study.toml")
QUESTIONS = [
    "Do more forwards help?",
    "Could another choice help?",
    "Is that in few places?",
    "Can it be predicted?",
    "Does acting on it pay?",
]


def finished(out: Path) -> dict[Path, int]:
    """What the first attempt got done, and when."""
    paths = [out / "problems.json", *sorted((out / "study" / "shards").glob("*/branches.parquet"))]
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A demo that was stopped in the middle of its study: the folder, and what was there then."""
    folder = tmp_path_factory.mktemp("demo")
    tiny_demo.write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(protocol, "decode_all_arms", _interrupted)
        assert main(["demo", "--out", "deep/demo", *QUICK]) == 130
    return folder, finished(folder / "deep" / "demo")


def _interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def test_it_goes_on_and_ends_with_the_verdicts_and_the_page(made, monkeypatch, capsys):
    folder, before = made
    place = folder / "deep" / "demo"
    assert len(before) == 3
    assert not (place / "report.html").exists()
    monkeypatch.chdir(folder)
    assert main(["demo", "--out", "deep/demo", *QUICK]) == 0
    # Nothing that was finished is done again.
    assert finished(place) == before
    assert sorted(path.name for path in place.iterdir()) == ["problems.csv", "problems.json", "report.html", "study"]
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines[-2:] == ["page: deep/demo/report.html", f"      {(place / 'report.html').as_uri()}"]
    assert [line.split("?")[0] + "?" for line in lines[-7:-2]] == QUESTIONS
    page = (place / "report.html").read_text(encoding="utf-8")
    assert all(question in page for question in QUESTIONS)
    # Three pictures of the demonstration, and those of the study.
    assert page.count("data:image/svg+xml;base64,") > 3
    assert "LLaDA" in page
    assert "WINO" in page


def test_a_folder_of_another_version_is_refused_and_left_alone(made, command, tmp_path):
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    study = tmp_path / "deep" / "demo" / "study"
    manifest = Store.open(study).manifest
    write_manifest(Store(study).files, {**manifest, "versions": {**manifest["versions"], "unmask": "0.0.1"}})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    ended = command("demo", "--out", "deep/demo", *QUICK)
    assert (ended.code, ended.out) == (2, "")
    for words in ("'deep/demo'", "unmask 0.0.1 then", "a new folder", "remove it, or choose another with --out"):
        assert words in ended.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
