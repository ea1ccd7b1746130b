"""`unmask models`: which models there are."""

import json
from dataclasses import asdict
from typing import Any

from unmask.cli.options import Json
from unmask.report.console import Console, say


def models(json_: Json = False) -> None:
    """List the models and their options."""
    from unmask.api.load import MODELS, running_here
    from unmask.report.terminal import entry as lines_of
    from unmask.report.terminal import settings_line

    rows: list[dict[str, Any]] = [
        {"name": name, "about": entry.about, "status": entry.status(), "options": asdict(entry.options())}
        | running_here(entry)
        for name, entry in MODELS.items()
    ]
    if json_:
        say(json.dumps(rows, indent=2))
        return
    console = Console()
    for row in rows:
        console.print(
            lines_of(row["name"], row["status"], row["about"], f"--model-option {settings_line(row['options'])}")
        )
        console.print()
    console.print("[dim]--model takes a hub id or a checkpoint folder, too.[/]")
