"""`unmask view`: look at a run, a study or one's own prompts in a browser, or write them as a page to send."""

import json
import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask.api import MODELS, ExactOptions, Model, find_saved_codec
from unmask.api.load import load as load_model
from unmask.base.errors import ConfigError, StorageError, UnknownName, require
from unmask.base.files import format_path, write_text
from unmask.cli.options import DataDir, LoadOptions, complete_model, options_as_flags
from unmask.cli.study import find_states
from unmask.cli.terminal import print_json, print_note, print_text
from unmask.core import Trajectory
from unmask.lab.store import Store
from unmask.models import Codec
from unmask.report.pages import run_page, runs_page, states_page
from unmask.report.run_data import TokenNumbers, run_data


@options_as_flags
def view(
    place: Annotated[
        Path | None,
        typer.Argument(metavar="[STUDY | RUN.npz]", help="A folder of `unmask study run`, or a file of --save."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="A name of `unmask models`, a hub id or a folder. Default: that of the run or study, else mini.",
            autocompletion=complete_model,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any that is free.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address; open no browser.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a page that needs no server and no network, and stop."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(help="Row of a run, from 0: one for each prompt and sample. Default: all; of --json 0."),
    ] = None,
    top: Annotated[int, typer.Option(help="Alternatives shown for each position, as far as they were recorded.")] = 3,
    json_: Annotated[bool, typer.Option("--json", help="Print a run's row as JSON, and stop.")] = False,
    data_dir: DataDir = None,
    *,
    load: LoadOptions,
) -> None:
    """Explore in a browser: watch prompts being decoded, stop at a state, do something else there, compare.

    It serves one page on this machine alone, at an address that holds a random token. Ctrl-C ends it. --export writes
    a run or the states of a study as one file instead. For a run no model is loaded then, only its tokenizer.

    \b
    Examples:
      unmask view                               the model of the package: tasks and your own prompts
      unmask view out/study                     a study: its prompts, states, and every candidate's answers
      unmask view run.npz                       a run of `unmask generate --save run.npz`
      unmask view run.npz --export run.html     every step of the run as a page to send
      unmask view out/study --export states.html
    """
    require(top >= 0, "--top", top, "0 or more", "3 is common")
    if export is not None and (export.is_dir() or not export.absolute().parent.is_dir() or export == place):
        raise ConfigError(
            f"--export {format_path(export)} cannot be written; allowed: a new file in a folder that exists; choose "
            "another"
        )
    if (export or json_) and place is None:
        raise ConfigError("--export has nothing to write; allowed: with a study's folder or a run's file; name one")
    if place is not None and not place.is_dir() and (export or json_):
        _export_run(Trajectory.load(place), model, export, row, top, json_)
    elif place is not None and export:
        _write_page(export, states_page(find_states(Store.open(str(place)))))
    else:
        require(not json_, "--json", format_path(place or ""), "a run's file", "studies have `study report --json`")
        _serve(place, model, load, data_dir, port, no_open)


def _export_run(
    run: Trajectory, model: str | None, export: Path | None, row: int | None, top: int, as_json: bool
) -> None:
    """Write rows of a run as a page, or print one."""
    rows = range(run.state.batch) if row is None else [row]
    codec = _find_codec(run, model)
    data = [run_data(run, at, codec, top=top) for at in rows]
    if export is not None:
        _write_page(export, run_page(data[0]) if len(data) == 1 else runs_page(data))
    if as_json:
        print_json(json.dumps(data[0], ensure_ascii=False, allow_nan=False))


def _find_codec(run: Trajectory, model: str | None) -> Codec:
    """Return the tokenizer of the model named, else of the run's; where there is none, tokens become numbers."""
    codec = find_saved_codec(run.config if model is None else {"model": {"name": model}})
    if codec is not None:
        return codec
    if model is not None:
        raise UnknownName("model with a tokenizer on this machine", model, MODELS)
    described: Any = (run.config or {}).get("model")
    named = isinstance(described, dict) and isinstance(described.get("name"), str)
    problem = f"the tokenizer of {described['name']} is not on this machine" if named else "the run names no model"
    print_note(f"{problem}: tokens are shown as numbers; name a tokenizer with --model")
    return TokenNumbers(run.state.mask_id)


def _write_page(path: Path, page: str) -> None:
    try:
        write_text(path, page)
    except OSError as error:
        raise StorageError(f"{format_path(path)} cannot be written ({error.strerror}); choose another place") from error
    print_text(str(path))


def _serve(
    place: Path | None, model: str | None, load: LoadOptions, data_dir: Path | None, port: int, no_open: bool
) -> None:
    """Serve the explorer until Ctrl-C. A study's models are loaded on first use; a model that is named, at once."""
    from unmask.viewer.explorer import Explorer, LoadedModels
    from unmask.viewer.server import Server
    from unmask.viewer.studies import StudyFolder

    if place is not None and not place.exists():
        raise ConfigError(
            f"there is nothing at {format_path(place)}; allowed: a folder of `unmask study run`, or a file of "
            "`unmask generate --save`; check the path"
        )
    study = StudyFolder(place, data_dir) if place is not None and place.is_dir() else None
    run = Trajectory.load(place) if place is not None and study is None else None
    loaders: dict[str, Callable[[], Model]] = {}
    for name, spec in study.specs.items() if study is not None else ():
        loaders[name] = partial(load_model, spec["model"], **spec.get("options", {}))
    name = model or ""
    if model is not None:
        loaded = load.load(model)
        loaders[model] = lambda: loaded
    elif study is None:
        name, options = ("mini", {}) if run is None else _model_of_run(run)
        loaders[name] = partial(load_model, name, **options) if run is not None else partial(load.load, name)
    explorer = Explorer(LoadedModels(loaders), study, data_dir)
    if name:
        explorer.models.get(name)
    if run is not None:
        explorer.open(run, name)
    server = Server(explorer, port)

    def announce() -> None:
        print_text(server.address)
        print_note("open the address in a browser of this machine; Ctrl-C ends it")
        if not no_open:
            # A file, because every user of the machine can read the command lines of others, the browser's among
            # them, and the address holds the token. Some browsers keep their caller waiting.
            threading.Thread(target=webbrowser.open, args=(server.write_opening_page().as_uri(),), daemon=True).start()

    try:
        server.run(announce)
    except KeyboardInterrupt:
        print_note("ended")


def _model_of_run(run: Trajectory) -> tuple[str, dict[str, Any]]:
    """Return name and options of the model that made a run. Only names of `unmask models`: a path in a file from
    somebody else is not opened."""
    described: Any = (run.config or {}).get("model")
    name = described.get("name") if isinstance(described, dict) else None
    if name not in MODELS:
        raise ConfigError(f"the run was made with {name!r}; allowed: a model of `unmask models`, or --model; name it")
    # `exact` is made from its options, others are read.
    options = {key: described[key] for key in ExactOptions.model_fields if key in described} if name == "exact" else {}
    return str(name), options
