"""One self-contained HTML page: style, scripts and data inside, to be kept, sent and opened without a network."""

import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files as resources
from typing import Any

# Nothing is fetched from anywhere, whatever a prompt or an answer on the page says.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; font-src data:"


def page(
    title: str,
    body: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
) -> str:
    """`body` is HTML and already escaped; `data` become JSON islands that scripts read by their id."""
    islands = "\n".join(island(name, value) for name, value in (data or {}).items())
    inside = "\n".join(f"<script>{_closed(script)}</script>" for script in scripts)
    style = "\n".join((asset("base.css"), *styles))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style}
</style>
</head>
<body>
{body}
{islands}
{inside}
</body>
</html>
"""


def island(name: str, value: Any) -> str:
    """A value for the page's scripts. No text inside can end the element or begin another."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = written.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{html.escape(name)}">{safe}</script>'


@cache
def asset(name: str, package: str = "unmask.look") -> str:
    """A style or script file that travels with the package."""
    return resources(package).joinpath(name).read_text(encoding="utf-8")


def _closed(script: str) -> str:
    """A script with no closing tag of its own inside."""
    return script.replace("</script", "<\\/script")
