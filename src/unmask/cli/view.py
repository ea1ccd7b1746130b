"""`unmask view`: look at studies, runs and one's own prompts in a browser, and branch from any state."""

import threading
import webbrowser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unmask.base.errors import ConfigError, StorageError
from unmask.base.files import format_path
from unmask.cli.generate import LoadAnyOptions
from unmask.cli.options import DataDir, options_as_flags
from unmask.cli.progress import note
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.api import Model
    from unmask.core import Trajectory
    from unmask.viewer.explorer import Explorer
    from unmask.viewer.studies import StudyFolder

DEFAULT = "mini"


@options_as_flags
def view(
    place: Annotated[
        Path | None,
        typer.Argument(metavar="[STUDY | TRAJECTORY]", help="A folder of `unmask study run`, or a file of --save."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"Which model to decode with. Default: {DEFAULT}, or the place's."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine; 0 for any that is free.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address; open no browser.")] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a read-only page to send instead, and stop.")
    ] = None,
    data_dir: DataDir = None,
    *,
    load: LoadAnyOptions,
) -> None:
    """Explore in a browser: watch prompts being decoded, stop at a state, do something else there, compare.

    It serves one page on this machine alone, at an address that holds a random token. Ctrl-C ends it.

    \b
    Examples:
      unmask view                               the model of the package: tasks and your own prompts
      unmask view out/study                     a study: its prompts, states, and every candidate's answers
      unmask view run.npz                       a run of `unmask generate --save run.npz`
      unmask view out/study --export states.html
    """
    _check_export(export)
    study, trajectory = _found(place, data_dir)
    explorer = _explorer(study, trajectory, model, load, data_dir)
    if export is not None:
        _write(export, _exported(explorer, study, trajectory))
        say(str(export))
        return
    _serve(explorer, port, no_open)


def _serve(explorer: "Explorer", port: int, no_open: bool) -> None:
    from unmask.viewer.server import Server

    server = Server(explorer, port)

    def tell() -> None:
        say(server.address)
        note("open the address in a browser of this machine; Ctrl-C ends it")
        if not no_open:
            # Some browsers keep their caller waiting.
            threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()

    try:
        server.run(tell)
    except KeyboardInterrupt:
        note("ended")


def _found(place: Path | None, data_dir: Path | None) -> "tuple[StudyFolder | None, Trajectory | None]":
    """What lies at the place: a study's folder, or a trajectory's file."""
    from unmask.core import Trajectory
    from unmask.viewer.studies import StudyFolder

    if place is None:
        return None, None
    if place.is_dir():
        return StudyFolder(place, data_dir), None
    if not place.exists():
        raise ConfigError(
            f"there is nothing at {format_path(place)}; allowed: a folder of `unmask study run`, or a file of "
            "`unmask generate --save`; check the path"
        )
    return None, Trajectory.load(place)


def _explorer(
    study: "StudyFolder | None",
    trajectory: "Trajectory | None",
    model: str | None,
    load: LoadAnyOptions,
    data_dir: Path | None,
) -> "Explorer":
    """Models of a study are loaded when they are first asked for; one that is named is loaded now, or refused."""
    from unmask.api.load import load as load_model
    from unmask.viewer.explorer import Explorer, LoadedModels

    loaders: dict[str, Callable[[], Model]] = {}
    if study is not None:
        for name, spec in study.specs.items():
            loaders[name] = partial(load_model, spec["model"], **spec.get("options", {}))
    name = model or ("" if study is not None else _model_of(trajectory))
    if name:
        loaded = load.load(name) if model else load_model(name, **_options_of(trajectory))
        loaders[name] = lambda: loaded
    explorer = Explorer(LoadedModels(loaders), study, data_dir)
    if name:
        explorer.models.get(name)
    if trajectory is not None:
        explorer.open(trajectory, name)
    return explorer


def _model_of(trajectory: "Trajectory | None") -> str:
    """The model that made a run, by its name: a place that a file names is not looked up."""
    from unmask.api import MODELS

    if trajectory is None:
        return DEFAULT
    described = (trajectory.config or {}).get("model")
    name = described.get("name") if isinstance(described, dict) else None
    if name not in MODELS:
        raise ConfigError(f"the run was made with {name!r}; allowed: a model of `unmask models`, or --model; name it")
    return str(name)


def _options_of(trajectory: "Trajectory | None") -> dict[str, Any]:
    """What a run says of a model that is made, not read."""
    from unmask.api import ExactOptions

    described = (trajectory.config or {}).get("model", {}) if trajectory is not None else {}
    if described.get("name") != "exact":
        return {}
    return {name: described[name] for name in ExactOptions.model_fields if name in described}


def _exported(explorer: "Explorer", study: "StudyFolder | None", trajectory: "Trajectory | None") -> str:
    from unmask.lab.analysis.states import state_evidence
    from unmask.report.pages import runs_page, states_page

    if study is not None:
        codecs = {name: codec for name in study.specs if (codec := study.codec(name)) is not None}
        return states_page(state_evidence(study.store, codecs))
    if trajectory is None:
        raise ConfigError("--export has nothing to write; allowed: with a study's folder or a run's file; name one")
    return runs_page([run.data for run in explorer.opened])


def _check_export(path: Path | None) -> None:
    """Before the work, not after."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(
            f"--export {format_path(path)} cannot be written; allowed: a file in a folder that exists; choose another"
        )


def _write(path: Path, text: str) -> None:
    from unmask.base.files import write_text

    try:
        write_text(path, text)
    except OSError as error:
        raise StorageError(f"{format_path(path)} cannot be written ({error.strerror}); choose another place") from error
