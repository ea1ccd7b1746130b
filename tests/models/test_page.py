"""docs/models.md: its Python runs as printed, and its links lead somewhere."""

import re

from tests.helpers.paths import DOCS

PAGE = (DOCS / "models.md").read_text(encoding="utf-8")


def test_python_blocks_run_in_order(capsys):
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(compile(block, "models.md", "exec"), names)
    approximate, same = capsys.readouterr().out.splitlines()[-1].rsplit(maxsplit=1)
    assert (approximate, same) == ("{'cache': 'dual', 'refresh': 0}", "True")


def test_links_lead_somewhere():
    for path, anchor in re.findall(r"\]\(([a-z]*\.?m?d?)#?([a-z0-9-]*)\)", PAGE):
        target = DOCS / path if path else DOCS / "models.md"
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
        anchors = [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, f"{path}#{anchor}"
