"""The training run: rows, steps, checkpoints, the exported model. A killed run goes on when it is started again."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from unmask.errors import UnmaskError
from unmask.models.execution import resolve_device
from unmask.train import data, journal
from unmask.train.config import Config
from unmask.train.data import Pool
from unmask.train.export import export, finished
from unmask.train.journal import Point, Record
from unmask.train.learner import Learner, Stepped, learning_rate, mixed
from unmask.train.resume import check_state
from unmask.train.sources import Folders

MODEL, SNAPSHOT = "model", "snapshot"

Score = Callable[[Path, int], Mapping[str, float]]
"""Mean utility by task of the model in a folder, on so many development prompts of each task."""


class TrainingFailed(UnmaskError):
    """The loss is not a number."""


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run is; sent after every step, with numbers when they were measured."""

    step: int
    steps: int
    point: Point | None = None
    tokens_per_second: float = 0.0
    remaining: float = 0.0
    """Seconds to the end at this speed."""
    scores: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Result:
    """A finished run."""

    folder: Path
    """The exported model."""
    manifest: Mapping[str, Any]


def train(
    config: Config,
    out: str | Path,
    *,
    device: str = "auto",
    folders: Folders | None = None,
    cache: str | Path | None = None,
    workers: int | None = None,
    score: Score | None = None,
    say: Callable[[str], None] = lambda line: None,
    on_step: Callable[[TrainingProgress], None] = lambda progress: None,
) -> Result:
    """Train what the configuration asks for, or go on where an interrupted run in `out` stopped.

    One run at a time has the folder. Rows of tokens are kept in `cache` (default: `out`), where other runs on the same
    data find them. `workers` processes make the texts (default: one per core); they change nothing but the time it
    takes.
    """
    out, place, folders = Path(out), resolve_device(device), folders or Folders()
    for folder in (out, Path(cache or out)):
        journal.check_place(folder)
    pool_key = data.data_key(config, folders)
    journal.check(out, config, pool_key)
    done = _finished(out, say)
    if done is not None:
        return done
    journal.check_writable(out)
    if cache is not None:
        journal.check_writable(Path(cache))
    if config.run.score_every and score is None:
        say("no suite scores during training: nobody to compute them")
    if config.run.compile and place.type != "cuda":
        say(f"not compiled: compilation is for CUDA devices, and this is {place}")
    if config.run.graph and place.type != "cuda":
        say(f"no graph of a step: graphs are for CUDA devices, and this is {place}")
    with journal.held(out, say):
        # Who held the folder before may have begun or finished a run in it.
        journal.check(out, config, pool_key)
        done = _finished(out, say)
        if done is not None:
            return done
        pool = data.load(config, folders, Path(cache) if cache is not None else out, say, workers)
        run = _TrainingRun(config, out, pool, place, score, say, on_step)
        # Only now: a folder in which nothing was trained belongs to nobody.
        journal.claim(out, config, pool_key, (MODEL, SNAPSHOT))
        say(f"{run.learner.model.spec.parameters:,} parameters, {run.shapes} per step, on {place}")
        return run.finish()


def _finished(out: Path, say: Callable[[str], None]) -> Result | None:
    manifest = finished(out / MODEL)
    if manifest is None:
        return None
    say(f"{out} is finished; nothing to do")
    return Result(out / MODEL, manifest)


class _TrainingRun:
    """A run in progress: what the loop needs beyond the learner."""

    def __init__(
        self,
        config: Config,
        out: Path,
        pool: Pool,
        device: torch.device,
        score: Score | None,
        say: Callable[[str], None],
        on_step: Callable[[TrainingProgress], None],
    ):
        self.config, self.out, self.pool = config, out, pool
        self.score, self.say, self.on_step = score, say, on_step
        self.learner = Learner(config, pool, device)
        self.record = Record()
        self.done, self.seconds = 0, 0.0
        # Since the last line of the curve: the sum of losses, kept on the device, and how many.
        self.sum, self.count = torch.zeros((), device=device), 0
        self._restore(device)

    @property
    def shapes(self) -> str:
        return " + ".join(f"{t.group.rows} x {t.group.length}" for t in self.learner.tables)

    def finish(self) -> Result:
        """Every step that is left, then the export."""
        config, steps = self.config, self.config.optimizer.steps
        clock = _Stopwatch(self.seconds, self.done)
        while self.done < steps:
            stepped = self.learner.step(self.done)
            self.sum, self.count = self.sum + stepped.loss, self.count + 1
            self.done += 1
            last = self.done == steps
            validated = last or _due(self.done, config.run.validate_every)
            if validated or _due(self.done, config.run.log_every):
                self._log(stepped, validated, clock)
            else:
                self.on_step(TrainingProgress(self.done, steps))
            if self.score is not None and (
                _due(self.done, config.run.score_every) or (last and config.run.score_every)
            ):
                self._score(self.score, clock)
            if _due(self.done, config.run.checkpoint_every) and not last:
                self.seconds = clock.seconds()
                journal.save(self.out, self._state(), self.done)
        notes = {
            "device": torch.cuda.get_device_name(self.learner.device) if self.learner.device.type == "cuda" else "cpu",
            "seed": config.seed,
            "steps": steps,
            "data": self.pool.key,
            "rows": len(self.pool.training),
            "left_out": dict(self.pool.left_out),
            "loss": self.record.points[-1].loss,
            "validation": self.record.points[-1].validation,
            "validation_by_source": self.record.validation,
            "scores": {task: value for step, task, value in self.record.scores if step == steps},
        }
        manifest = export(self.learner.model, self.pool.tokenizer, config, self.out / MODEL, notes)
        return Result(self.out / MODEL, manifest)

    def _log(self, stepped: Stepped, validated: bool, clock: "_Stopwatch") -> None:
        loss = float(self.sum) / self.count
        if not math.isfinite(loss):
            raise TrainingFailed(
                f"the loss is {loss} after step {self.done}; allowed: a finite number; lower optimizer.rate or "
                "optimizer.clip, or lengthen the warm-up"
            )
        self.sum, self.count = torch.zeros_like(self.sum), 0
        if validated:
            self.record.validation = self.learner.validate()
        settings, tokens = self.config.optimizer, self.done * self.learner.tokens_per_step
        point = Point(
            self.done,
            loss,
            mixed(self.record.validation, self.config) if validated else None,
            learning_rate(settings, self.done - 1),
            float(stepped.gradient),
            tokens,
            clock.seconds(),
        )
        self.record.points.append(point)
        self.record.write(self.out)
        speed = clock.steps_per_second(self.done)
        self.on_step(
            TrainingProgress(
                self.done,
                settings.steps,
                point,
                speed * self.learner.tokens_per_step,
                (settings.steps - self.done) / speed if speed else 0.0,
            )
        )

    def _score(self, score: Score, clock: "_Stopwatch") -> None:
        folder = self.out / SNAPSHOT
        with clock.paused():
            export(self.learner.model, self.pool.tokenizer, self.config, folder, {"steps": self.done})
            scores = dict(score(folder, self.config.run.score_prompts))
        self.record.scores += [(self.done, task, value) for task, value in scores.items()]
        self.record.write(self.out)
        self.on_step(TrainingProgress(self.done, self.config.optimizer.steps, scores=scores))

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.done,
            **self.learner.state(),
            "sum": self.sum,
            "count": self.count,
            "seconds": self.seconds,
            "points": [asdict(point) for point in self.record.points],
            "scores": self.record.scores,
            "validation": self.record.validation,
        }

    def _restore(self, device: torch.device) -> None:
        found = journal.newest(self.out, device)
        if found is None:
            return
        path, state = found
        try:
            steps, learner = self.config.optimizer.steps, self.learner
            check_state(state, int(path.stem.removeprefix("step-")), steps, learner.model, learner.optimizers)
        except (ValueError, TypeError, RuntimeError) as error:
            raise journal.damaged(path, error) from error
        self.learner.restore(state)
        self.done, self.sum, self.count, self.seconds = (state[name] for name in ("step", "sum", "count", "seconds"))
        points = [Point(**point) for point in state["points"]]
        self.record = Record(points, [tuple(line) for line in state["scores"]], state["validation"])
        self.say(f"going on from step {self.done}")


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


class _Stopwatch:
    """Seconds of training over all attempts, and the speed of this one without its first steps."""

    def __init__(self, before: float, step: int):
        self._start = time.monotonic() - before
        self._first: tuple[int, float] | None = None
        self._step = step

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def steps_per_second(self, step: int) -> float:
        """Measured from the first call on: the steps before it hold compilation and warm-up."""
        if self._first is None:
            self._first = (step, self.seconds())
            return (step - self._step) / max(self.seconds(), 1e-9)
        steps, since = self._first
        return (step - steps) / max(self.seconds() - since, 1e-9)

    def paused(self) -> "_Pause":
        return _Pause(self)


class _Pause:
    """Time that does not count."""

    def __init__(self, clock: _Stopwatch):
        self.clock = clock

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.clock._start += time.monotonic() - self._began
