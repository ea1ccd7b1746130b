"""What one does with the suite: list it, look at it, export it, score a model's answers.

Plain values in and out; how they are shown is up to the caller.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unmask.base.errors import ConfigError, SchemaError, require
from unmask.base.files import format_path, os_error_text
from unmask.tasks import jsonl, splits, table
from unmask.tasks.base import SPLITS, Answers, DataDir, Example, Json, OwnExample, Task, TaskJudge, Verdict


def listing() -> list[dict[str, Json]]:
    """The ten tasks as the paper's table has them, with the number of examples per split; then the controls."""
    return [
        {
            "name": task.name,
            "title": task.title,
            "horizon": task.horizon,
            "source": task.source,
            "output": task.output,
            "utility": task.utility,
            "counts": dict(task.counts),
            "version": task.version,
            "control": task.name in table.CONTROLS,
        }
        for task in (*table.TASKS.values(), *table.CONTROLS.values())
    ]


def examples(name: str | Task, split: str = "evaluation", data_dir: DataDir = None) -> tuple[Example, ...]:
    """All examples of one split of a task. The first n are a fair sample of them."""
    return splits.examples(table.find(name), split, data_dir)


def training(name: str | Task, start: int = 0, data_dir: DataDir = None) -> Iterator[Example]:
    """Training examples from number `start` on, disjoint from the three splits; see `splits.training`."""
    return splits.training(table.find(name), start, data_dir)


def show(name: str, n: int = 5, split: str = "development", data_dir: DataDir = None) -> tuple[Example, ...]:
    """The first n examples of a split, to look at."""
    require(n >= 1, "number of examples", n, "1 or more", "ask for at least one")
    return examples(name, split, data_dir)[:n]


def export(
    folder: str | os.PathLike[str],
    names: Sequence[str] | None = None,
    splits: Sequence[str] = SPLITS,
    data_dir: DataDir = None,
) -> tuple[Path, ...]:
    """Write `TASK.SPLIT.jsonl` for every task and split asked for; all ten tasks if none is named."""
    # All examples before the first file: a missing data set should not leave half an export behind.
    chosen = [table.find(name) for name in (names if names is not None else table.TASKS)]
    parts = [(task, split, examples(task, split, data_dir)) for task in chosen for split in splits]
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        shown, why = format_path(place), os_error_text(error)
        raise ConfigError(f"the folder {shown} cannot be made ({why}); choose another") from error
    return tuple(
        jsonl.write_lines(place / f"{task.name}.{split}.jsonl", (jsonl.line(e, task.prompts_version) for e in members))
        for task, split, members in parts
    )


@dataclass(frozen=True)
class LevelSummary:
    """The scored predictions of one level of difficulty."""

    level: int
    scored: int
    mean: float


@dataclass(frozen=True)
class ScoreSummary:
    """What a file of predictions is worth on one split."""

    task: str
    split: str
    examples: int
    """Examples that the split has."""
    scored: int
    unavailable: int
    """Predictions that the evaluator could not judge; they are not in the mean."""
    mean: float | None
    """Mean utility of the scored predictions; None if there are none."""
    perfect: int
    """Predictions with utility 1."""
    levels: tuple[LevelSummary, ...]
    missing: tuple[str, ...]
    """Ids of the split without a prediction; they are not in the mean either."""
    elsewhere: tuple[str, ...]
    """Ids in the file that belong to another split of the task."""
    unknown: tuple[str, ...]
    """Ids in the file that the task does not have."""


@dataclass(frozen=True)
class Scores:
    """A summary and the verdicts behind it, in the order of the file."""

    summary: ScoreSummary
    verdicts: tuple[Verdict, ...]


def score_predictions(
    name: str,
    path: str | os.PathLike[str],
    split: str = "evaluation",
    data_dir: DataDir = None,
    jobs: int | None = None,
    on_done: Callable[[Verdict], None] = lambda verdict: None,
) -> Scores:
    """Score a file of predictions on one split of a task. `on_done` hears of every verdict as it falls."""
    members = {example.id: example for example in examples(name, split, data_dir)}
    predictions = jsonl.read_predictions(path)
    if not predictions:
        raise SchemaError(f'{str(path)!r} has no predictions; allowed: {{"id": "...", "text": "..."}} per line')
    others = {e.id for s in SPLITS if s != split for e in examples(name, s, data_dir)}
    strangers = [p.id for p in predictions if p.id not in members]
    elsewhere = tuple(id for id in strangers if id in others)
    if len(strangers) == len(predictions):
        raise SchemaError(
            f"{str(path)!r} has no prediction for the {split} split of {name}: "
            f"{len(elsewhere)} of its {len(predictions)} ids belong to another split, the first id is "
            f"{predictions[0].id!r}; allowed: ids such as {next(iter(members))!r}; check the task and the split"
        )
    pairs = [(p.text, members[p.id]) for p in predictions if p.id in members]
    verdicts = score_all(pairs, jobs, on_done)
    answered = {p.id for p in predictions}
    summary = _summary(
        name,
        split,
        members,
        verdicts,
        missing=tuple(id for id in members if id not in answered),
        elsewhere=elsewhere,
        unknown=tuple(id for id in strangers if id not in others),
    )
    return Scores(summary, tuple(verdicts))


def judge_of(example: Example) -> TaskJudge:
    """Who scores answers to an example: the judge of its task."""
    return example.judge if isinstance(example, OwnExample) else table.find(example.task).judge


def score(text: str, example: Example) -> Verdict:
    """Score one output. Never raises for the sake of the output, and takes time linear in it."""
    return judge_of(example).judge(text, example)


def score_all(
    answers: Answers,
    jobs: int | None = None,
    on_done: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """Verdicts on outputs and their examples, in order. Programs run side by side, `jobs` at a time."""
    jobs = jobs if jobs is not None else os.cpu_count() or 1
    require(jobs >= 1, "jobs", jobs, "1 or more", "use one at least")
    judges = {judge_of(example) for _, example in answers}
    if len(judges) == 1:
        return judges.pop().judge_all(answers, jobs, on_done)
    verdicts = []
    for text, example in answers:
        verdicts.append(score(text, example))
        on_done(verdicts[-1])
    return verdicts


def _summary(
    name: str,
    split: str,
    members: Mapping[str, Example],
    verdicts: Sequence[Verdict],
    missing: tuple[str, ...],
    elsewhere: tuple[str, ...],
    unknown: tuple[str, ...],
) -> ScoreSummary:
    by_level: dict[int, list[float]] = {}
    for verdict in verdicts:
        if verdict.utility is not None:
            by_level.setdefault(members[verdict.id].level, []).append(verdict.utility)
    scored = [u for level in sorted(by_level) for u in by_level[level]]
    return ScoreSummary(
        task=name,
        split=split,
        examples=len(members),
        scored=len(scored),
        unavailable=len(verdicts) - len(scored),
        mean=sum(scored) / len(scored) if scored else None,
        perfect=sum(u == 1.0 for u in scored),
        levels=tuple(LevelSummary(k, len(us), sum(us) / len(us)) for k, us in sorted(by_level.items())),
        missing=missing,
        elsewhere=elsewhere,
        unknown=unknown,
    )
