"""Whether a model scores here what its authors report: their settings, their problems, an interval and a conclusion."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from unmask.api import LoadedModel, token_request
from unmask.base.errors import ConfigError, UnknownName, require
from unmask.base.options import Options
from unmask.lab.compare import ComparePlan, CompareProgress, Comparison, run_comparison
from unmask.lab.published import (
    DEFAULT_TASKS,
    PUBLISHED,
    WHOLE,
    OfficialPrompts,
    PublishedModel,
    PublishedRun,
    Turn,
    find_family,
    find_published,
    official_prompts,
    published_task,
    with_turns,
)
from unmask.lab.study.prompts import select_examples
from unmask.stats import Estimate, wilson
from unmask.tasks import DataDir, Example, Task

POLICY = "authors"
"""Name of the one policy of such a run."""
WIDE = 0.05
"""Half an interval beyond this says too little to call an agreement one."""


class VerifyOptions(Options):
    """What is decoded to check a model's published figures."""

    task: tuple[str, ...] = Field(
        (),
        description="gsm8k, humaneval, or gsm8k-pure (llada without blocks). Repeatable. Default: the first two.",
    )
    prompts: int | None = Field(
        None, ge=1, description="The first so many problems of each, a fair sample. Default: all."
    )
    published: str | None = Field(
        None, description="Whose figures the weights of a folder should reach: llada, llada-1.5 or dream."
    )
    batch_size: int | None = Field(
        None, ge=1, description="Rows decoded together. Default: what memory is sure to hold."
    )
    seed: int = Field(0, description="Seed of all random numbers.")
    data_dir: Path | str | None = Field(None, description="Official data files. Default: $UNMASK_DATA, else the hub.")
    sandbox_workers: int | None = Field(
        None, ge=1, description="Programs run side by side (HumanEval). Default: all cores."
    )


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
    """Size of the whole data set."""
    chosen: tuple[Example, ...]
    files: dict[str, str]
    """The data files and their hashes."""

    @property
    def shots(self) -> int:
        """Number of solved problems that are shown."""
        return len(self.turns) // 2

    @property
    def forwards(self) -> int:
        """Forwards of one row at most: a problem that does not fit costs none."""
        return len(self.chosen) * self.run.steps


@dataclass(frozen=True)
class VerifiedRun:
    """What was measured on one task, beside what is published."""

    prepared: PreparedRun
    too_long: tuple[str, ...]
    """Ids of problems that leave no room for the answer."""
    unjudged: int
    """Answers that the evaluator could not judge; not counted."""
    right: int
    share: Estimate
    """Share of right answers among those judged, with Wilson's 95 % interval."""
    agreement: Agreement
    conclusion: str
    """The agreement in words."""
    labels: tuple[str, ...]
    """What this run is not: a whole data set, the authors' number of solved problems."""
    config: dict[str, Any]
    answers: pd.DataFrame
    """A row per problem, as in a comparison."""
    damaged: tuple[str, ...]

    @property
    def run(self) -> PublishedRun:
        """The authors' settings and figure."""
        return self.prepared.run

    @property
    def forwards(self) -> int:
        """Forwards of all answers."""
        return int(self.answers["forwards"].sum())


def published_names() -> list[str]:
    """Names of the models that have settings here."""
    return [model.name for model in PUBLISHED]


def choose_target(model: str, family: Any, published: str | None = None) -> Target:
    """Choose settings and figures: those of `published`, else of the model by its name, else its family's settings."""
    names = published_names()
    known = find_published(published or model)
    if published is not None:
        require(
            known is not None, "published", published, ", ".join(names), "name whose figures these weights should have"
        )
    first = find_family(family)
    if first is None:
        raise ConfigError(
            f"{model} is of no family with published figures; allowed: LLaDA's and Dream's checkpoints "
            f"({', '.join(names)}, mini, mini-dream, a folder or hub id); load one of those"
        )
    if known is None:
        return Target(first.without_figures(), trial=True)
    fits = known.family == family
    require(fits, "published", known.name, f"those of a model of the family {family!r}", f"{model} is another network")
    return Target(known, trial=False)


def choose_tasks(names: Sequence[str] = (), model: str = "") -> tuple[str, ...]:
    """Return the tasks, each once; refused where no model has one, or the model that is named has not."""
    published = find_published(model)
    known = list(dict.fromkeys(run.name for model in PUBLISHED for run in model.runs))
    for name in names:
        if published is not None:
            published.run(name)
        elif name not in known:
            raise UnknownName("task", name, known)
    return tuple(dict.fromkeys(names or DEFAULT_TASKS))


def check_data(names: Sequence[str], data_dir: DataDir = None) -> None:
    """Read the data sets of these runs, so that what is missing is said before a model is loaded."""
    for run in (run for model in PUBLISHED for run in model.runs if run.name in names):
        official_prompts(run.task, data_dir)


def prepare_run(
    model: LoadedModel, target: Target, name: str, *, prompts: int | None = None, data_dir: DataDir = None
) -> PreparedRun:
    """Prepare the first `prompts` problems of a task (default: all), as the authors put them.

    In a trial, a model with a short context is shown fewer solved problems; for a published model nothing is changed.
    """
    require(prompts is None or prompts >= 1, "prompts", prompts, "1 or more", "ask for at least one")
    run = target.of.run(name)
    official = official_prompts(run.task, data_dir)
    chosen = select_examples(published_task(run, official, 0), WHOLE, prompts=prompts)
    shots = _shots_that_fit(model, run, official, chosen) if target.trial else run.shots
    return PreparedRun(
        run,
        published_task(run, official, shots),
        official.turns[: 2 * shots],
        len(official.problems),
        chosen,
        {file.path: file.sha256 for file in official.files},
    )


def _shots_that_fit(model: LoadedModel, run: PublishedRun, official: OfficialPrompts, chosen: Sequence[Example]) -> int:
    """Count the solved problems that leave room for every answer; 0 where some do not fit at all."""
    if model.max_length is None:
        return run.shots
    for shots in range(run.shots, 0, -1):
        shown = with_turns(model, official.turns[: 2 * shots])
        requests = (
            token_request(shown, shown.codec.encode(example.prompt), run.new_tokens, run.steps) for example in chosen
        )
        if all(len(request.canvas) <= model.max_length for request in requests):
            return shots
    return 0


def verify_run(
    model: LoadedModel,
    prepared: PreparedRun,
    target: Target,
    *,
    seed: int = 0,
    batch_size: int | None = None,
    sandbox_workers: int | None = None,
    work_dir: str | Path | None = None,
    on_progress: Callable[[CompareProgress], None] = lambda progress: None,
) -> VerifiedRun:
    """Decode and score one task; `work_dir` is a folder that keeps every finished batch."""
    run = prepared.run
    plan = ComparePlan(
        tasks=[prepared.task],
        split=WHOLE,
        policies={POLICY: run.policy},
        prompts=len(prepared.chosen),
        steps=run.steps,
        temperature=run.sampling.temperature,
        seed=seed,
        sampling=run.sampling,
    )
    comparison = run_comparison(
        with_turns(model, prepared.turns),
        plan,
        batch_size=batch_size,
        sandbox_workers=sandbox_workers,
        work_dir=work_dir,
        on_progress=on_progress,
    )
    return _conclude(prepared, target, comparison, model.max_length)


def _conclude(prepared: PreparedRun, target: Target, comparison: Comparison, max_length: int | None) -> VerifiedRun:
    run, answers = prepared.run, comparison.answers
    judged = answers["utility"].dropna()
    right, unjudged = int((judged == 1.0).sum()), len(answers) - len(judged)
    share = wilson(right, len(judged))
    agreement, conclusion = compare_share(run.figure, share, whole=len(judged) == prepared.problems)
    if agreement is Agreement.NO_FIGURE and target.trial:
        name = target.of.hub.partition("/")[2]
        conclusion = f"no published figure for this model: a trial of the procedure, says nothing about {name}"
    elif agreement is Agreement.NO_FIGURE:
        conclusion = f"no published figure of {target.of.hub} could be checked: there is nothing to compare with"
    decoded, chosen = set(answers["prompt"]), len(prepared.chosen)
    too_long = tuple(example.id for example in prepared.chosen if example.id not in decoded)
    labels = []
    if chosen < prepared.problems:
        labels.append(f"a subset: {chosen} of {prepared.problems} problems, drawn by a hash of their ids")
    if prepared.shots < run.shots:
        labels.append(
            f"solved problems shown: {prepared.shots}, not {run.shots}; more do not fit into {max_length} positions"
        )
    if too_long:
        room = f"leave no room for {run.new_tokens} tokens in {max_length} positions"
        labels.append(f"left out: {len(too_long)} of {chosen} problems, the longest, which {room}")
    if unjudged:
        labels.append(f"left out: answers that could not be judged, {unjudged}")
    return VerifiedRun(
        prepared=prepared,
        too_long=too_long,
        unjudged=unjudged,
        right=right,
        share=share,
        agreement=agreement,
        conclusion=conclusion,
        labels=tuple(labels),
        config=comparison.config,
        answers=answers,
        damaged=comparison.damaged,
    )


def compare_share(figure: float | None, share: Estimate, *, whole: bool) -> tuple[Agreement, str]:
    """Say what a share of right answers means for a figure in percent; `whole`: of all problems that there are.

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
