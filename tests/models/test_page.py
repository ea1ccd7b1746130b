"""docs/models.md: its Python runs as printed, and the command line knows all of its commands and options."""

import re
import shlex

import pytest
import typer

from tests.helpers.paths import DOCS
from unmask.cli.app import app

PAGE = (DOCS / "models.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^unmask (.*?)(?:\s+#.*)?$", PAGE, re.M)


def test_python_blocks_run_in_order(capsys):
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(compile(block, "models.md", "exec"), names)
    approximate, same = capsys.readouterr().out.splitlines()[-1].rsplit(maxsplit=1)
    assert (approximate, same) == ("{'cache': 'dual', 'refresh': 0}", "True")


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_parsed(line):
    words, command = shlex.split(line), typer.main.get_command(app)
    while hasattr(command, "commands"):
        found = command.commands.get(words[0]) if not words[0].startswith("-") else None
        if found is None:
            break
        command, words = found, words[1:]
    # Parsed, and not run: models of the hub are not here.
    command.make_context("unmask", words)


def test_links_lead_somewhere():
    for path, anchor in re.findall(r"\]\(([a-z]*\.?m?d?)#?([a-z0-9-]*)\)", PAGE):
        target = DOCS / path if path else DOCS / "models.md"
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
        anchors = [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, f"{path}#{anchor}"
