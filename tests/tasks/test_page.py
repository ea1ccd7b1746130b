"""What docs/tasks.md shows runs as printed, and its table of attacks and its walk-through are made from runs.

python -m tests.tasks.test_page      writes the walk-through again
python -m tests.attacks.sandbox      writes the table of attacks again
"""

import json
import re
import shlex

import pytest

from tests.attacks import sandbox as attacks
from tests.helpers.paths import DOCS
from unmask.cli.app import main
from unmask.tasks import Extraction, Verdict, explain_verdict, find_task, score

PAGE = DOCS / "tasks.md"
TEXT = PAGE.read_text(encoding="utf-8")
BEGIN, END = "<!-- walk-through: begin -->\n", "<!-- walk-through: end -->\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def walk_through() -> str:
    example = min(find_task("carry-rtl").examples("development")[:40], key=lambda e: (e.level, len(e.prompt)))
    verdict = score(r"Right to left: \boxed{[1]=1; [2]=1; [3]=1}", example)
    steps = "\n".join(explain_verdict(verdict))
    return f"`{example.id}`:\n\n```text\n{example.prompt}\n```\n\n```text\n{steps}\n```\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(blocks("json")[0], encoding="utf-8")
    (tmp_path / "spelling.py").write_text(next(b for b in blocks("python") if b.startswith("class")), encoding="utf-8")
    example = find_task("carry-rtl").examples()[0]
    answer = {"id": example.id, "text": f"<answer>{example.target}</answer>"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_run(block, folder):
    exec(compile(block, "tasks.md", "exec"), {})


def test_commands_run(folder, capsys):
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert (program, main(arguments)) == ("unmask", 0), command
    assert "mean utility 1.0000 over 1 of 500" in capsys.readouterr().out


def test_the_table_of_attacks_is_complete_and_none_escaped():
    """It is out of date if an attack was added."""
    table = TEXT.split(attacks.BEGIN)[1].split(attacks.END)[0]
    assert "escaped" not in table
    for goal, words in attacks.GOALS.items():
        assert f"| {words} | {sum(attack.goal == goal for attack in attacks.ATTACKS)} | " in table


def test_the_walk_through_is_true():
    assert TEXT.split(BEGIN)[1].split(END)[0] == walk_through(), "run python -m tests.tasks.test_page"


def test_long_texts_are_shortened_in_explanations():
    verdict = Verdict("x", None, "no sandbox", Extraction("a" * 10_000, "nothing", "", ""), ())
    lines = explain_verdict(verdict)
    assert max(map(len, lines)) < 200
    assert lines[-1].endswith("unavailable: no sandbox")


if __name__ == "__main__":
    before, rest = TEXT.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{walk_through()}{END}{rest.split(END)[1]}", encoding="utf-8")
