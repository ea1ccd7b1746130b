"""`unmask study report --state`: the page of single states."""

import pytest

from tests.helpers import made_studies as made
from unmask.lab.analysis.states import collect_state_evidence


@pytest.fixture
def study(tmp_path):
    return made.store(tmp_path / "study", made.known(prompts=2), models={"small": "mini"})


def test_the_page_and_the_extremes(command, study, tmp_path):
    told = collect_state_evidence(study)
    done = command("study", "report", "study", "--state", told.gains["key"][0])
    assert done.code == 0, done.err
    gain, loss, where = done.out.splitlines()
    assert gain.startswith(f"largest gain: +0.700 at {told.gains['key'][0]}, region block:8")
    assert loss.startswith("largest loss: -0.500 at small/fill/")
    assert where == f"{len(told.states)} of 40 states are in study/report/states.html"
    page = (tmp_path / "study" / "report" / "states.html").read_text(encoding="utf-8")
    assert told.losses["key"][0] in page
    # The tokenizer of mini is in the package.
    assert done.err == ""
    assert "shown as numbers" not in page


def test_a_state_by_name_and_one_that_is_not_there(command, study, tmp_path):
    key = "small/sort/validation-0-1/3"
    assert command("study", "report", "study", "--state", key, "--out", "there").code == 0
    assert key in (tmp_path / "there" / "states.html").read_text(encoding="utf-8")
    refused = command("study", "report", "study", "--state", "small/sort/nobody/3", "--out", "other")
    assert refused.code == 2
    assert "the study has no state 'small/sort/nobody/3'; allowed: MODEL/TASK/PROMPT/NUMBER" in refused.err
    assert not (tmp_path / "other").exists()


def test_what_is_missing_or_damaged_is_named(command, tmp_path):
    made.store(tmp_path / "part", made.known(prompts=2), unfinished=[("small", "later", "evaluation")])
    key = ("--state", "small/sort/validation-0-1/3")
    done = command("study", "report", "part", *key)
    assert done.code == 0
    assert "not complete: small on later is not finished" in done.err
    assert "the tokenizer of small is not on this machine: tokens are shown as numbers" in done.err
    shard = next((tmp_path / "part" / "shards").iterdir())
    (shard / "branches.parquet").write_bytes(b"")
    refused = command("study", "report", "part", "--out", "none", *key)
    assert refused.code == 2
    assert shard.name in refused.err
    assert not (tmp_path / "none").exists()
    assert "no study in 'nowhere'" in command("study", "report", "nowhere", *key).err
