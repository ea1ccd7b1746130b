"""`unmask methods`: which unmasking methods there are."""

import json
from dataclasses import fields

from unmask.cli.options import Json
from unmask.report.console import Console, say


def methods(json_: Json = False) -> None:
    """List the unmasking methods and their settings."""
    from unmask.policies import METHODS, Method, make, settings
    from unmask.report.terminal import columns, entry, settings_line

    taxonomy = [f.name for f in fields(Method) if f.name not in ("policy", "source")]
    rows = [
        {
            "name": name,
            "source": method.source,
            "about": (method.policy.__doc__ or "").partition("\n")[0],
            **{name: getattr(method, name) for name in taxonomy},
            "settings": {key: value for key, value in settings(make(name)).items() if key != "name"},
        }
        for name, method in METHODS.items()
    ]
    if json_:
        say(json.dumps(rows, indent=2))
        return
    console = Console()
    console.print(columns(("method", *taxonomy), [[row[head] for head in ("name", *taxonomy)] for row in rows]))
    for row in rows:
        console.print()
        console.print(entry(row["name"], row["source"], row["about"], f"--set {settings_line(row['settings'])}"))
