"""The golden dump: its quick sections are as committed, and a slip in the code is seen."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import golden, golden_compare
from tests.golden_compare import compact, differences_from_committed, differences_of_dumps
from tests.helpers.paths import ROOT

SLIP = ("base: Count = 2", "base: Count = 3")
"""A stride of DUS: on a canvas of six tokens other positions are revealed together."""


@pytest.mark.parametrize("section", golden.QUICK)
def test_the_quick_sections_are_as_committed(section):
    assert golden_compare.check([section]) == []


def test_every_section_has_committed_values():
    committed = {path.stem for path in golden_compare.COMMITTED.glob("*.txt")}
    assert committed == set(golden.SECTIONS)


class TestKinds:
    OLD = {"texts": ["a", 1, True], "floats": {"a": 0.5, "b": [3.0, 250.25]}}  # noqa: RUF012

    def differences(self, new, tmp_path):
        golden_compare.write_committed(tmp_path / "s.txt", {"key": self.OLD})
        return differences_from_committed(golden_compare.read_committed(tmp_path / "s.txt"), {"key": new})

    @pytest.mark.parametrize("floats", [{"a": 0.50009, "b": [3.0, 250.27]}, {"b": [3.00005, 250.25], "a": 0.5}])
    def test_floats_may_be_off_by_the_tolerance(self, floats, tmp_path):
        assert self.differences(self.OLD | {"floats": floats}, tmp_path) == []

    @pytest.mark.parametrize("floats", [{"a": 0.5002, "b": [3.0, 250.25]}, {"a": 0.5, "b": [3.0, 250.3]}])
    def test_floats_beyond_it_differ(self, floats, tmp_path):
        (line,) = self.differences(self.OLD | {"floats": floats}, tmp_path)
        assert line.startswith("key: 1 of 3 floats differ")

    @pytest.mark.parametrize("texts", [["b", 1, True], ["a", 2, True], ["a", 1, False], ["a", 1], ["a", 1.0, True]])
    def test_all_else_is_exact(self, texts, tmp_path):
        assert self.differences(self.OLD | {"texts": texts}, tmp_path) == ["key: texts, integers or shape differ"]

    def test_whole_numbers_held_as_floats_are_counts(self):
        assert not golden_compare.close(30001.0, 30000.0)
        assert golden_compare.close(30000.9, 30000.0)

    def test_words_and_bits_of_this_machine_are_not_committed(self, tmp_path):
        golden_compare.write_committed(tmp_path / "s.txt", {"words/a": "said", "machine/a": "0f", "a": 1})
        assert list(golden_compare.read_committed(tmp_path / "s.txt")) == ["a"]
        assert compact({"a": float("1")}) != compact({"a": 1})

    def test_dumps_of_one_machine_are_compared_to_the_bit(self):
        old = {"a": {"x": [1.0, 2.0]}, "machine/a": "0f", "words/a": "said", "only": 1}
        new = {"a": {"x": [1.0, 2.0 + 1e-12]}, "machine/a": "0e", "words/a": "written"}
        lines = differences_of_dumps(old, new)
        assert [line.split(":")[0] for line in lines] == ["a at .x[1]", "machine/a at ", "only"]


def test_a_dump_by_other_code_is_refused(tmp_path):
    """The installed package answers where the path is not set as it should be."""
    out = tmp_path / "dump"
    out.mkdir()
    command = [sys.executable, str(ROOT / "tests" / "golden.py"), "--in-process", str(out), "default_steps"]
    (tmp_path / "unmask.py").write_text("")
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**golden.environment(), "PYTHONPATH": str(tmp_path)}
    )
    assert done.returncode
    assert f"unmask was imported from {tmp_path / 'unmask.py'}, which is outside {ROOT / 'src'}" in done.stderr
    assert not list(out.iterdir())


@pytest.fixture
def copy(tmp_path):
    """A repository of one commit: the package and the golden dump."""
    folder = tmp_path / "copy"
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=unneeded)
    (folder / "tests").mkdir()
    for name in ("golden.py", "golden_compare.py"):
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    shutil.copytree(golden_compare.COMMITTED, folder / "tests" / "golden_values")
    (folder / ".gitignore").write_text(".golden/\n__pycache__/\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "All"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def compare(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "tests/golden_compare.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_slip_is_seen(copy):
    """A slip in DUS turns `check` and `against` red, and both name DUS alone."""
    (path,) = (copy / "src").rglob("dus.py")
    text = path.read_text("utf-8")
    assert text.count(SLIP[0]) == 1, "the slip of this test no longer fits the code of DUS: plant another"
    path.write_text(text.replace(*SLIP), "utf-8")
    for arguments in (["check", "decode_exact"], ["against", "HEAD", "decode_exact"]):
        code, said = compare(copy, *arguments)
        assert code == 1, said
        lines = [line for line in said.splitlines() if line.startswith("decode_exact/")]
        assert lines
        assert all("/dus/" in line for line in lines)
    # The dump of the commit is kept, the worktree that it was made in is not.
    (kept,) = (path for path in (copy / ".golden").iterdir() if len(path.name) == 40)
    assert [path.name for path in kept.iterdir()] == ["decode_exact.json.gz"]
    assert not any((copy / ".golden" / "worktrees").iterdir())
    path.write_text(text, "utf-8")
    code, said = compare(copy, "against", "HEAD", "decode_exact")
    assert code == 0, said
    assert "all values are equal" in said
