"""`unmask train`: train a small masked diffusion model from a configuration file."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unmask.cli.progress import bar, watching
from unmask.report.console import say

if TYPE_CHECKING:
    from unmask.train import TrainingProgress

GPU_ROWS = 512
"""Decoded together for the scores."""


def train(
    config: Annotated[Path, typer.Option(metavar="FILE.toml", help="What to train; configs/mini.toml is one.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run lives; an interrupted one goes on there.")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Official data, for GSM8K. Default: $UNMASK_DATA, else the hub."),
    ] = None,
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
    from unmask.train import CONSTRUCTED, Folders, TrainConfig, list_checkpoints, train

    settings = TrainConfig.read(config)
    if steps is not None:
        optimizer = settings.optimizer.model_dump() | {"steps": steps}
        settings = TrainConfig(**(settings.model_dump() | {"optimizer": optimizer}))
    folders = Folders(str(data_dir) if data_dir else None, str(texts) if texts else None)
    scored = [name for name in settings.sources if name in CONSTRUCTED]
    # The bar takes stdout over while it lives: not if that is a file.
    live = sys.stderr.isatty() and sys.stdout.isatty()
    try:
        with watching(_lines, lambda: _screen(settings.optimizer.steps), live=live) as show:
            model = train(
                settings,
                out,
                device=device,
                folders=folders,
                cache=cache,
                score=_scorer(scored, device) if scored else None,
                log=say,
                on_step=show,
            )
    except KeyboardInterrupt:
        kept = list_checkpoints(out)
        say(f"stopped; the same command {f'goes on from {kept[-1]}' if kept else 'starts again: no checkpoint yet'}")
        raise
    validation = json.loads((model / "manifest.json").read_text(encoding="utf-8"))["validation"]
    say(f"model in {model}: validation loss {validation:.4f}")


def _scorer(tasks: Sequence[str], device: str) -> Callable[[Path, int], Mapping[str, float]]:
    """Scores of the model in a folder: its reference decoder on development prompts of these tasks."""

    def score(folder: Path, prompts: int) -> dict[str, float]:
        from unmask.api.load import load
        from unmask.lab.compare import ComparePlan, run_comparison
        from unmask.methods import make_policy

        model = load(str(folder), device=device)
        plan = ComparePlan(
            tasks=tasks,
            split="development",
            prompts=prompts,
            policies={"reference": make_policy(model.reference)},
        )
        rows = GPU_ROWS if model.denoiser.device.type == "cuda" else None
        means = run_comparison(model, plan, batch_size=rows).mean_utilities()
        for task in (task for task, value in means.items() if math.isnan(value)):
            say(f"no score of {task}: none of its prompts could be decoded")
        return {task: value for task, value in means.items() if not math.isnan(value)}

    return score


def _line(now: "TrainingProgress") -> str:
    """One step in words; empty if there is nothing to tell."""
    if now.scores is not None:
        return f"step {now.step}  scores  " + "  ".join(f"{task} {value:.3f}" for task, value in now.scores.items())
    if now.point is None:
        return ""
    point = now.point
    validation = "" if point.validation is None else f"  validation {point.validation:.4f}"
    minutes, seconds = divmod(round(now.remaining), 60)
    return (
        f"step {now.step}/{now.steps}  loss {point.loss:.4f}{validation}  rate {point.rate:.2e}  "
        f"{_amount(now.tokens_per_second)} tokens/s  {minutes}:{seconds:02d} left"
    )


def _lines(now: "TrainingProgress") -> None:
    if line := _line(now):
        say(line)


@contextmanager
def _screen(steps: int) -> "Iterator[Callable[[TrainingProgress], None]]":
    """On a terminal: a bar that says the last numbers; scores stay."""
    text = "training"
    with bar(text, steps) as show:

        def update(now: "TrainingProgress") -> None:
            nonlocal text
            if now.scores is not None:
                say(_line(now))
                return
            text = _line(now) or text
            show(now.step, steps, text)

        yield update


def _amount(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f}"
