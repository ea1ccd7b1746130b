"""docs/quickstart.md: its Python runs in order, its commands run or have the flags that they show."""

import re
import shlex

import pytest

from tests.helpers.paths import DOCS

PAGE = (DOCS / "quickstart.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS = [shlex.split(line, comments=True)[1:] for line in LINES if line.startswith("unmask ")]


def test_python_blocks_run_in_order(capsys, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail(f"opened {address}"))
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "quickstart.md", "exec"), names)
    assert ".html ['prompt', 'sample', 'text'" in capsys.readouterr().out
    names["page"].unlink()


def test_commands_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in COMMANDS:
        if words[0] == "generate" or words[1:3] == ["run.npz", "--export"]:
            code, _, err = run(*words, *(["--device", "cpu"] if words[0] == "generate" else []))
            assert code == 0, (words, err)
        else:
            code, out, _ = run(words[0], "--help")
            assert code == 0
            assert all(word in out for word in words if word.startswith("--")), words
    assert (tmp_path / "run.html").stat().st_size > 10_000
