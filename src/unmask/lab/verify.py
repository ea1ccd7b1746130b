"""Whether a model scores here what its authors report: their settings, their problems, an interval and a verdict."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from unmask.api import LoadedModel, token_request
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.lab import published
from unmask.lab.asked import WHOLE, Asked, Turn, asked, shown_first, task_of
from unmask.lab.compare import AnswerRow, ComparePlan, CompareProgress, Evaluation, run_comparison
from unmask.lab.published import PublishedModel, PublishedRun
from unmask.lab.study.prompts import select_examples
from unmask.stats import Estimate, wilson
from unmask.tasks import DataDir, Example, Task

POLICY = "authors"
"""What the one policy of such a run is called."""
WIDE = 0.05
"""Half an interval beyond this says too little to call an agreement one."""


class Agreement(StrEnum):
    """What a measured share says about a published figure."""

    AGREES = "agrees"
    BELOW = "below"
    ABOVE = "above"
    CANNOT_TELL = "cannot tell"
    NO_FIGURE = "no figure"


@dataclass(frozen=True)
class Target:
    """Whose settings a model is decoded with, and whether its figures are those of this model."""

    of: PublishedModel
    trial: bool
    """Another model of the family: its settings, and none of its figures."""


@dataclass(frozen=True)
class PreparedRun:
    """One task, ready to be decoded."""

    run: PublishedRun
    task: Task
    turns: tuple[Turn, ...]
    """Shown before every problem."""
    problems: int
    """Of the whole data set."""
    chosen: tuple[Example, ...]
    files: dict[str, str]
    """The data files and their hashes."""

    @property
    def shots(self) -> int:
        return len(self.turns) // 2

    @property
    def forwards(self) -> int:
        """At most: a problem that does not fit costs none."""
        return len(self.chosen) * self.run.steps


@dataclass(frozen=True)
class VerifiedTask:
    """What was measured on one task, beside what is published."""

    run: PublishedRun
    problems: int
    """Of the whole data set."""
    chosen: int
    shots: int
    too_long: tuple[str, ...]
    """Ids of problems that leave no room for the answer."""
    unjudged: int
    """Answers that the evaluator could not judge; not counted."""
    right: int
    share: Estimate
    """Of right answers among those judged, with Wilson's 95 % interval."""
    forwards: int
    agreement: Agreement
    says: str
    """The verdict in words."""
    labels: tuple[str, ...]
    """What this run is not."""
    config: dict[str, Any]
    files: dict[str, str]
    rows: tuple[AnswerRow, ...]
    damaged: tuple[str, ...]


def target_of(given: str, family: Any, figures: str | None = None) -> Target:
    """Whose settings and figures: those of `figures`, else of the model as it was named, else its family's settings."""
    names = model_names()
    known = published.by_name(figures or given)
    if figures is not None:
        require(known is not None, "figures", figures, ", ".join(names), "name whose figures these weights should have")
    first = published.by_family(family)
    if first is None:
        raise ConfigError(
            f"{given} is of no family with published figures; allowed: LLaDA's and Dream's checkpoints "
            f"({', '.join(names)}, mini, mini-dream, a folder or hub id); load one of those"
        )
    if known is None:
        return Target(first.without_figures(), trial=True)
    fits = known.family == family
    require(fits, "figures", known.name, f"those of a model of the family {family!r}", f"{given} is another network")
    return Target(known, trial=False)


def model_names() -> list[str]:
    """Of the models that have settings here."""
    return [model.name for model in published.PUBLISHED]


def chosen_tasks(names: Sequence[str] | None, given: str = "") -> tuple[str, ...]:
    """Each once, in the order given; refused where no model has it, or the one that is named has not."""
    of = published.by_name(given)
    known = list(dict.fromkeys(run.name for model in published.PUBLISHED for run in model.runs))
    for name in names or ():
        if of is not None:
            of.run(name)
        elif name not in known:
            raise UnknownName("task", name, known)
    return tuple(dict.fromkeys(names or published.DEFAULT))


def check_data(names: Sequence[str], data_dir: DataDir = None) -> None:
    """Read the data sets of these runs, so that what is missing is said before a model is loaded."""
    for run in (run for model in published.PUBLISHED for run in model.runs if run.name in names):
        asked(run.task, data_dir)


def prepare(
    model: LoadedModel, target: Target, names: Sequence[str], *, prompts: int | None = None, data_dir: DataDir = None
) -> tuple[PreparedRun, ...]:
    """The first `prompts` problems of each task (default: all), as the authors put them.

    In a trial, a model with a short context is shown fewer solved problems; for a published model nothing is changed.
    """
    require(prompts is None or prompts >= 1, "prompts", prompts, "1 or more", "ask for at least one")
    return tuple(_prepared(model, target, name, prompts, data_dir) for name in names)


def _prepared(model: LoadedModel, target: Target, name: str, prompts: int | None, data_dir: DataDir) -> PreparedRun:
    run = target.of.run(name)
    problems = asked(run.task, data_dir)
    chosen = select_examples(task_of(run, problems, 0), WHOLE, prompts=prompts)
    shots = _shots_that_fit(model, run, problems, chosen) if target.trial else run.shots
    return PreparedRun(
        run,
        task_of(run, problems, shots),
        problems.turns[: 2 * shots],
        len(problems.problems),
        chosen,
        {file.path: file.sha256 for file in problems.files},
    )


def _shots_that_fit(model: LoadedModel, run: PublishedRun, problems: Asked, chosen: Sequence[Example]) -> int:
    """The most solved problems that leave room for every answer; 0 where some do not fit at all."""
    if model.max_length is None:
        return run.shots
    for shots in range(run.shots, 0, -1):
        shown = shown_first(model, problems.turns[: 2 * shots])
        if all(_canvas(shown, run, example) <= model.max_length for example in chosen):
            return shots
    return 0


def _canvas(model: LoadedModel, run: PublishedRun, example: Example) -> int:
    return len(token_request(model, model.codec.encode(example.prompt), run.new_tokens, run.steps).canvas)


def measure(
    model: LoadedModel,
    prepared: PreparedRun,
    target: Target,
    *,
    seed: int = 0,
    batch: int | None = None,
    jobs: int | None = None,
    work: str | Path | None = None,
    on_progress: Callable[[CompareProgress], None] = lambda progress: None,
) -> VerifiedTask:
    """Decode and score one task; `work` is a folder that keeps every finished batch."""
    run = prepared.run
    plan = ComparePlan(
        tasks=[prepared.task],
        split=WHOLE,
        policies={POLICY: run.policy},
        prompts=len(prepared.chosen),
        steps=run.steps,
        temperature=run.proposal.temperature,
        seed=seed,
        proposal=run.proposal,
    )
    shown = shown_first(model, prepared.turns)
    found = run_comparison(shown, plan, batch=batch, jobs=jobs, work=work, on_progress=on_progress)
    return _verified(prepared, target, found, model.max_length)


def _verified(prepared: PreparedRun, target: Target, found: Evaluation, length: int | None) -> VerifiedTask:
    judged = [row for row in found.rows if not math.isnan(row.utility)]
    right = sum(row.utility == 1.0 for row in judged)
    share = wilson(right, len(judged))
    agreement, says = verdict(prepared.run.figure, share, whole=len(judged) == prepared.problems)
    decoded = {row.prompt for row in found.rows}
    too_long = tuple(example.id for example in prepared.chosen if example.id not in decoded)
    unjudged = len(found.rows) - len(judged)
    return VerifiedTask(
        run=prepared.run,
        problems=prepared.problems,
        chosen=len(prepared.chosen),
        shots=prepared.shots,
        too_long=too_long,
        unjudged=unjudged,
        right=right,
        share=share,
        forwards=sum(row.forwards for row in found.rows),
        agreement=agreement,
        says=_no_figure(target) if agreement is Agreement.NO_FIGURE else says,
        labels=tuple(_labels(prepared, len(too_long), unjudged, length)),
        config=found.config,
        files=prepared.files,
        rows=found.rows,
        damaged=found.damaged,
    )


def verdict(figure: float | None, share: Estimate, *, whole: bool) -> tuple[Agreement, str]:
    """What a share of right answers says about a figure in percent; `whole`: of all problems that there are.

    A figure outside of the interval is refuted however wide that is. One inside is confirmed only by a narrow one.
    """
    if figure is None:
        return Agreement.NO_FIGURE, "no published figure for this model"
    if math.isnan(share.value):
        return Agreement.CANNOT_TELL, "cannot tell: no answer was judged"
    low, high, half = 100 * share.low, 100 * share.high, 50 * (share.high - share.low)
    ends = f"{low:.1f} to {high:.1f}"
    if not low <= figure <= high:
        below = figure > high
        side = Agreement.BELOW if below else Agreement.ABOVE
        return side, f"{side}: the published {figure:g} lies {'above' if below else 'below'} the interval, {ends}"
    if half > 100 * WIDE:
        why = f"all {share.n} problems give no less" if whole else "n too small, take more problems"
        return Agreement.CANNOT_TELL, f"cannot tell: {why}; {figure:g} lies in the interval, {ends}, ±{half:.1f} points"
    return Agreement.AGREES, f"agrees: the published {figure:g} lies in the interval, {ends}"


def _no_figure(target: Target) -> str:
    if target.trial:
        name = target.of.hub.partition("/")[2]
        return f"no published figure for this model: a trial of the procedure, says nothing about {name}"
    return f"no published figure of {target.of.hub} could be checked: there is nothing to compare with"


def _labels(prepared: PreparedRun, too_long: int, unjudged: int, length: int | None) -> Iterator[str]:
    chosen, run = len(prepared.chosen), prepared.run
    if chosen < prepared.problems:
        yield f"a subset: {chosen} of {prepared.problems} problems, drawn by a hash of their ids"
    if prepared.shots < run.shots:
        yield f"solved problems shown: {prepared.shots}, not {run.shots}; more do not fit into {length} positions"
    if too_long:
        room = f"leave no room for {run.new_tokens} tokens in {length} positions"
        yield f"left out: {too_long} of {chosen} problems, the longest, which {room}"
    if unjudged:
        yield f"left out: answers that could not be judged, {unjudged}"
