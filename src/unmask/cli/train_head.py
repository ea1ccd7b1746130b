"""`unmask train head`: a learned part of a method, trained on a model's hidden rows; and the group it stands in."""

import inspect
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unmask.base.errors import ConfigError
from unmask.cli.options import LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import note
from unmask.cli.train import train
from unmask.report.console import say

trains = typer.Typer(help=inspect.getdoc(train), rich_markup_mode=None)


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How much is read, and for how long the head is fitted."""

    examples: Annotated[int, typer.Option(help="Texts to learn from.")] = 2000
    held_out: Annotated[int, typer.Option(help="Other texts, to judge by.")] = 200
    steps: Annotated[int, typer.Option(help="Steps of the fit.")] = 3000
    batch: Annotated[int, typer.Option(help="Texts per step, and through the model together.")] = 16
    size: Annotated[int, typer.Option(help="Width of the head.")] = 64
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0


def _whole(context: typer.Context, **given: Any) -> None:
    if context.invoked_subcommand is not None:
        return
    missing = [f"--{name}" for name in ("config", "out") if given[name] is None]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} missing; allowed: --config FILE.toml --out FOLDER, or `unmask train head`; add it"
        )
    train(**given)


_own = inspect.signature(train)
_optional = [p.replace(default=None) if p.default is inspect.Parameter.empty else p for p in _own.parameters.values()]
_context = next(iter(inspect.signature(_whole).parameters.values()))
_whole.__dict__["__signature__"] = _own.replace(parameters=[_context, *_optional])
_whole.__doc__ = train.__doc__
trains.callback(invoke_without_command=True)(_whole)


@options_as_flags
def head(
    kind: Annotated[str, typer.Option(help="`demask` (dependence of positions) or `ddpd` (which tokens are noise).")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the head goes, FOLDER/head.")],
    model: ModelName = "mini",
    texts: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Text files to learn from. Default: the package's own texts.")
    ] = None,
    *,
    fit: FitOptions,
    load: LoadOptions,
) -> None:
    """Train the learned part of DEMASK or DDPD for a model, from its hidden rows; the model itself stays as it is.

    The folder gets the weights, a card with their hash, data, loss and quality on held-out texts, and a page. A
    finished one is left as it is; an interrupted run begins again.

    \b
    Examples:
      unmask train head --kind demask --model mini --out out/demask-mini
      unmask generate --policy demask --set head=out/demask-mini/head
    """
    from unmask.train import Folders, HeadOptions, train_head

    options = HeadOptions(kind=kind, **asdict(fit))
    folders = Folders(texts=str(texts)) if texts is not None else None
    try:
        card = train_head(load.load(model), options, out, folders=folders, log=say)
    except KeyboardInterrupt:
        note(f"stopped: nothing is kept in {str(out)!r}; the same command starts from the beginning")
        raise
    say(f"head in {out / 'head'}: weights {card.weights_sha256[:12]}")


trains.command()(head)
