"""`unmask train head` as a user types it, and the group it shares with `unmask train`."""

import signal
import subprocess
import sys

import pytest

from tests.helpers.fresh_python import environment
from unmask.train.run_folder import LOCK

FEW = ("--examples", "6", "--held-out", "4", "--steps", "2", "--batch-size", "2", "--size", "4", "--device", "cpu")


def test_a_head_is_trained_and_used(command, tmp_path):
    ended = command("train", "head", "--kind", "ddpd", "--model", "mini", "--out", "made", *FEW)
    assert ended.code == 0, ended.err
    assert "held-out: loss" in ended.out
    assert (tmp_path / "made" / "head" / "head.json").is_file()
    asked = ("generate", "2+2", "--max-new-tokens", "4", "--steps", "3", "--json", "--policy", "ddpd")
    document = command(*asked, "--set", "head=made/head").json
    assert document["forwards"] == 6
    assert document["config"]["policy"]["head"] == "made/head"


def test_a_finished_folder_of_other_settings_or_texts_is_refused(command, tmp_path):
    asked = ("train", "head", "--kind", "ddpd", "--model", "mini", "--out", "made", *FEW)
    assert command(*asked).code == 0
    assert "nothing to do" in command(*asked).out
    before = (tmp_path / "made" / "head" / "head.json").read_bytes()
    (tmp_path / "texts").mkdir()
    other = command(*asked, "--texts", "texts")
    assert other.code == 2
    assert "holds another head, ddpd for mini (texts the package's own there, texts asked for)" in other.err
    other = command(*asked, "--seed", "3")
    assert other.code == 2
    # In words, not as Python writes a dict.
    assert "(seed 0 there, 3 asked for); allowed: the same command; use another --out" in other.err
    assert "{" not in other.err
    assert (tmp_path / "made" / "head" / "head.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_starts_from_the_beginning(command, tmp_path, sent):
    """And leaves nothing that could be taken for a head."""
    asked = ["train", "head", "--kind", "ddpd", "--model", "mini", "--out", str(tmp_path / "made"), *FEW[:4]]
    asked += ["--steps", "100000", "--batch-size", "2", "--size", "4", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "unmask", *asked],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "texts to learn from" in process.stdout.readline()
    process.send_signal(sent)
    _, err = process.communicate()
    if sent == signal.SIGINT:
        assert process.returncode == 130
        assert f"interrupted: nothing is kept in {str(tmp_path / 'made')!r}" in err
    assert [path.name for path in (tmp_path / "made").iterdir()] == [LOCK]
    again = command("train", "head", "--kind", "ddpd", "--model", "mini", "--out", "made", *FEW)
    assert "did not finish, and kept nothing: this one starts from the beginning" in again.out
    assert (tmp_path / "made" / "head" / "head.json").is_file()
