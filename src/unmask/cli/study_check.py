"""`unmask study check`: whether a store's files are still what was written."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from unmask.cli.options import Json
from unmask.report.console import say


def check(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="What `unmask study run` was given as --out.")],
    json_: Json = False,
) -> None:
    """Verify every file of a study: bytes, values, names and the manifest. Ends with 1 if something is damaged.

    Nothing is changed. `unmask study run` with the same --out sets what is damaged aside and measures it again.

    \b
    Example:
      unmask study check out/study
    """
    from unmask.lab.store.check import check_store, lines_of

    result = check_store(folder)
    if json_:
        say(json.dumps({"sound": result.sound, **asdict(result)}, indent=2))
    else:
        for line in lines_of(result):
            say(line)
    if not result.sound:
        raise typer.Exit(1)
