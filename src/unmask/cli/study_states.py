"""`unmask study states`: single states of a study, and what every candidate made of them, as a page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.base.errors import require
from unmask.cli.progress import note
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.lab.analysis.states import StateEvidence
    from unmask.lab.store import Store

NAME = "states.html"


def states(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `unmask study run` was given as --out.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where it goes. Default: DIR/report.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="MODEL/TASK/PROMPT/NUMBER", help="Show this state first. Repeatable."),
    ] = None,
) -> None:
    """Show where a candidate was better or worse than the reference, and what each of them wrote.

    Writes one page: the ten states with the largest gains and the ten with the largest losses, each with its canvas and
    every candidate's next canvas, final text, score and explanation. No model is run.

    \b
    Examples:
      unmask study states out/study
      unmask study states out/study --state mini/carry-rtl/carry-rtl-v1-0018/2
    """
    from unmask.lab.store import Store

    written, told = write_states(Store.open(folder), report_folder(folder, out), keys=state or [])
    for line in told.missing:
        note(f"not complete: {line}")
    if told.unspelled:
        note(f"the tokenizer of {', '.join(told.unspelled)} is not on this machine: tokens are shown as numbers")
    for name, ranked in (("gain", told.gains), ("loss", told.losses)):
        for first in ranked[:1].itertuples():
            say(f"largest {name}: {first.difference:+.3f} at {first.key}, {first.axis} {first.candidate}")
    say(f"{len(told.states)} of {told.compared:,} states are in {written}")


def report_folder(folder: str, out: Path | None) -> Path:
    """Where pages go: beside the tables unless told, and always on this machine."""
    from unmask.lab.store import scheme_of
    from unmask.lab.store.remote import open_files

    chosen = os.path.join(folder, "report") if out is None else str(out)
    local = scheme_of(chosen) in ("", "file")
    require(local, "--out", None if out is None else chosen, "a folder of this machine", "add --out FOLDER")
    return Path(open_files(chosen).address)


def write_states(store: "Store", place: Path, *, keys: Sequence[str] = ()) -> "tuple[Path, StateEvidence]":
    """Make the page in a folder; what is on it, too."""
    from unmask.api import saved_codec
    from unmask.lab.analysis.states import state_evidence
    from unmask.report import files
    from unmask.report.pages import states_page

    # Models whose tokenizer is not on this machine are left out: their states show token numbers.
    specs = store.manifest["study"]["models"]
    found = {spec["name"]: saved_codec({"model": {**spec.get("options", {}), "name": spec["model"]}}) for spec in specs}
    codecs = {name: codec for name, codec in found.items() if codec is not None}
    told = state_evidence(store, codecs, keys=keys)
    return files.write(files.folder(place) / NAME, states_page(told).encode("utf-8")), told
