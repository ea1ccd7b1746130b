"""`unmask show`: a saved run as a page to look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError, UnknownName, require
from unmask.cli.options import Json
from unmask.cli.progress import note
from unmask.report.console import say, say_json

if TYPE_CHECKING:
    from unmask.core import Trajectory
    from unmask.models import Codec


def show(
    file: Annotated[Path, typer.Argument(metavar="RUN.npz", help="What `unmask generate --save` wrote.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="The page. Default: RUN.html.")] = None,
    row: Annotated[int, typer.Option(help="Which row: one for each prompt and sample, from 0.")] = 0,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Whose tokenizer spells the tokens. Default: that of the run's model."),
    ] = None,
    top: Annotated[int, typer.Option(help="Alternatives of each filled position, as far as they were recorded.")] = 3,
    json_: Json = False,
) -> None:
    """Make a page of a saved run: every step and position, how sure the model was, who acted and why.

    No model is loaded, only its tokenizer. The page needs no network and can be sent.

    \b
    Example:
      unmask generate --policy remdm --save run.npz && unmask show run.npz
    """
    import json

    from unmask.core import Trajectory
    from unmask.report import files
    from unmask.report.pages import run_page
    from unmask.report.run_data import run_data

    require(top >= 0, "--top", top, "0 or more", "3 is common")
    target = file.with_suffix(".html") if out is None else out
    if target.is_dir() or target.absolute() == file.absolute():
        raise ConfigError(
            f"--out {str(target)!r} is a folder, or the run; allowed: a file; add a name such as run.html"
        )
    run = Trajectory.load(file)
    record = run_data(run, row, _codec(run, model), top=top)
    if json_:
        say_json(json.dumps(record, ensure_ascii=False, allow_nan=False))
        return
    files.write(files.folder(target.parent) / target.name, run_page(record).encode("utf-8"))
    if run.state.batch > 1:
        note(f"row {row} of {run.state.batch}; --row shows another")
    say(f"{len(record['steps'])} steps are in {target}")


def _codec(run: "Trajectory", model: str | None) -> "Codec":
    """The tokenizer that was asked for, or that of the run's model; without any, tokens are numbers, which is said."""
    from unmask.api import MODELS, saved_codec
    from unmask.report.run_data import TokenNumbers

    found = saved_codec(run.config if model is None else {"model": {"name": model}})
    if found is not None:
        return found
    if model is not None:
        raise UnknownName("model with a tokenizer on this machine", model, MODELS)
    made_by: Any = (run.config or {}).get("model")
    named = isinstance(made_by, dict) and isinstance(made_by.get("name"), str)
    whose = f"the tokenizer of {made_by['name']} is not on this machine" if named else "the run does not name its model"
    note(f"{whose}: tokens are shown as numbers; name a tokenizer with --model")
    return TokenNumbers(run.state.mask_id)
