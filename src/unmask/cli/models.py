"""`unmask models`: which models there are."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from unmask.cli.options import Json
from unmask.report.console import Console, say

if TYPE_CHECKING:
    from unmask.api.load import ModelEntry


def models(json_: Json = False) -> None:
    """List the models and their options."""
    from unmask.api import MODELS
    from unmask.report.terminal import entry as lines_of
    from unmask.report.terminal import settings_line

    rows: list[dict[str, Any]] = [
        {"name": name, "about": entry.about, "status": entry.status(), "options": dict(entry.options())}
        | _running_here(entry)
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


def _running_here(entry: "ModelEntry") -> dict[str, Any]:
    """How the layers and the pass over the vocabulary run on this machine, and why; no engine without a choice."""
    import torch

    from unmask.core import choose_statistics
    from unmask.models.execution import choose_execution, resolve_device

    options = dict(entry.options())
    device = resolve_device(options["device"]) if "device" in options else torch.device("cpu")
    engine = {"engine": asdict(choose_execution(options["engine"], device))} if "engine" in options else {}
    return engine | {"statistics": asdict(choose_statistics(device))}
