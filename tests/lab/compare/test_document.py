"""docs/compare.md runs as printed."""

import re

from tests.helpers.paths import DOCS


def test_the_example_runs(capsys):
    page = (DOCS / "compare.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "compare.md", "exec"), names)
    assert 0 < float(capsys.readouterr().out) < 10
    assert len(names["comparison"].answers) == 8
