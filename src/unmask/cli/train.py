"""`unmask train`: train a small masked diffusion model, or with `train head` the learned part of a method."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from unmask.api.load import load as load_model
from unmask.base.errors import ConfigError
from unmask.cli.options import DataDir, LoadOptions, ModelName, options_as_flags
from unmask.cli.progress import explain_interrupts, show_bar, show_progress
from unmask.cli.terminal import print_text
from unmask.lab.compare import ComparePlan, run_comparison
from unmask.methods import make_policy
from unmask.train import (
    CONSTRUCTED,
    Folders,
    HeadOptions,
    TrainConfig,
    TrainingProgress,
    list_checkpoints,
    train_head,
)
from unmask.train import train as train_model

GPU_BATCH = 512
"""Rows decoded together for the scores during training."""

train = typer.Typer(rich_markup_mode=None)


@train.callback(invoke_without_command=True)
def train_from_file(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="What to train; configs/mini.toml is one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the run lives; an interrupted one goes on there.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    data_dir: DataDir = None,
    texts: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Text files to read, for a configuration that asks for them.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where tokenised rows are kept. Default: --out.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Another number of steps than the configuration's.")] = None,
) -> None:
    """Train a small masked diffusion model.

    The folder gets the model in its family's published format (model/), the loss curve (curve.csv) and checkpoints.
    The same command goes on after an interruption.

    \b
    Examples:
      unmask train --config configs/smoke.toml --out out/smoke --device cpu
      unmask train --config configs/mini.toml --out out/mini --data-dir data
    """
    if context.invoked_subcommand is not None:
        return
    if config is None or out is None:
        missing = " and ".join(name for name, value in {"--config": config, "--out": out}.items() if value is None)
        raise ConfigError(
            f"{missing} missing; allowed: --config FILE.toml --out FOLDER, or `unmask train head`; add it"
        )
    settings = TrainConfig.read(config)
    if steps is not None:
        optimizer = settings.optimizer.model_dump() | {"steps": steps}
        settings = TrainConfig(**(settings.model_dump() | {"optimizer": optimizer}))
    tasks = [name for name in settings.sources if name in CONSTRUCTED]
    # The bar takes stdout over while it lives, so there is none where stdout is a file.
    live = sys.stderr.isatty() and sys.stdout.isatty()

    def describe_kept() -> str:
        kept = list_checkpoints(out)
        return f"the same command {f'goes on from {kept[-1]}' if kept else 'starts again: no checkpoint yet'}"

    open_screen = lambda: _open_screen(settings.optimizer.steps)  # noqa: E731
    with explain_interrupts(describe_kept), show_progress(_print_step, open_screen, live=live) as on_step:
        model = train_model(
            settings,
            out,
            device=device,
            folders=Folders(str(data_dir) if data_dir else None, str(texts) if texts else None),
            cache=cache,
            score=_make_scorer(tasks, device) if tasks else None,
            log=print_text,
            on_step=on_step,
        )
    validation = json.loads((model / "manifest.json").read_text(encoding="utf-8"))["validation"]
    print_text(f"model in {model}: validation loss {validation:.4f}")


def _make_scorer(tasks: Sequence[str], device: str) -> Callable[[Path, int], Mapping[str, float]]:
    """Make a function that scores the model in a folder: its reference decoder on development prompts of the tasks."""

    def score(folder: Path, prompts: int) -> dict[str, float]:
        model = load_model(str(folder), device=device)
        policies = {"reference": make_policy(model.reference)}
        plan = ComparePlan(tasks=tasks, split="development", prompts=prompts, policies=policies)
        batch_size = GPU_BATCH if model.denoiser.device.type == "cuda" else None
        means = run_comparison(model, plan, batch_size=batch_size).mean_utilities()
        for task in (task for task, value in means.items() if math.isnan(value)):
            print_text(f"no score of {task}: none of its prompts could be decoded")
        return {task: value for task, value in means.items() if not math.isnan(value)}

    return score


def _describe_step(now: TrainingProgress) -> str:
    """Return a step in words; empty where there is nothing to tell."""
    if now.scores is not None:
        return f"step {now.step}  scores  " + "  ".join(f"{task} {value:.3f}" for task, value in now.scores.items())
    if now.point is None:
        return ""
    point = now.point
    validation = "" if point.validation is None else f"  validation {point.validation:.4f}"
    minutes, seconds = divmod(round(now.remaining), 60)
    return (
        f"step {now.step}/{now.steps}  loss {point.loss:.4f}{validation}  rate {point.rate:.2e}  "
        f"{_spell_amount(now.tokens_per_second)} tokens/s  {minutes}:{seconds:02d} left"
    )


def _spell_amount(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f}"


def _print_step(now: TrainingProgress) -> None:
    if line := _describe_step(now):
        print_text(line)


@contextmanager
def _open_screen(steps: int) -> Iterator[Callable[[TrainingProgress], None]]:
    """Show a bar with the last numbers; scores stay above it."""
    text = "training"
    with show_bar(text, steps) as update:

        def on_step(now: TrainingProgress) -> None:
            nonlocal text
            if now.scores is not None:
                print_text(_describe_step(now))
                return
            text = _describe_step(now) or text
            update(completed=now.step, description=text)

        yield on_step


@train.command()
@options_as_flags
def head(
    kind: Annotated[str, typer.Option(help="`demask` (dependence of positions) or `ddpd` (which tokens are noise).")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the head goes, FOLDER/head.")],
    model: ModelName = "mini",
    texts: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Text files to learn from. Default: the package's own texts.")
    ] = None,
    examples: Annotated[int, typer.Option(help="Texts to learn from.")] = 2000,
    held_out: Annotated[int, typer.Option(help="Other texts, to evaluate the head on.")] = 200,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 3000,
    batch_size: Annotated[int, typer.Option(help="Texts per step, and through the model together.")] = 16,
    size: Annotated[int, typer.Option(help="Width of the head.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    *,
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
    amounts = {"examples": examples, "held_out": held_out, "steps": steps, "batch": batch_size, "size": size}
    options = HeadOptions(kind=kind, seed=seed, **amounts)
    folders = Folders(texts=str(texts)) if texts is not None else None
    with explain_interrupts(lambda: f"nothing is kept in {str(out)!r}; the same command starts from the beginning"):
        card = train_head(load.load(model), options, out, folders=folders, log=print_text)
    print_text(f"head in {out / 'head'}: weights {card.weights_sha256[:12]}")
