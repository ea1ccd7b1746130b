"""The pages on comparisons and on the protocol: examples run, and commands have the flags that they show."""

import re
import shlex

import pytest

from tests.helpers.paths import DOCS
from unmask.cli.app import main

PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("compare.md", "protocol.md")}
COMMANDS = sorted(
    {
        (line.split()[1], flag)
        for page in PAGES.values()
        for line in re.findall(r"^unmask .*$", page, re.M)
        for flag in shlex.split(line, comments=True)
        if flag.startswith("--")
    }
)


def test_the_example_runs(capsys):
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGES["compare.md"], re.S):
        exec(compile(block, "compare.md", "exec"), names)
    assert 0 < float(capsys.readouterr().out) < 10
    assert len(names["comparison"].answers) == 8


@pytest.mark.parametrize("command", sorted({command for command, _ in COMMANDS}))
def test_commands_have_the_flags_that_are_shown(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [flag for name, flag in COMMANDS if name == command and flag not in shown] == []
