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
    WHOLE_SPLIT,
    OfficialPrompts,
    PublishedModel,
    PublishedRun,
    Turn,
    find_family,
    find_published,
    published_task,
    read_official_prompts,
    with_turns,
)
from unmask.lab.study.prompts import select_examples
from unmask.stats import Estimate, wilson_interval
from unmask.tasks import DataDir, Example, Task

POLICY = "authors"
"""Name of the one policy of such a run."""
WIDE_INTERVAL = 0.05
"""Half an interval beyond this says too little to call an agreement one."""


class VerifyOptions(Options):
    """Options of `unmask verify`: tasks, number of prompts and whose settings."""

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
    """Relation of a measured share to a published figure."""

    AGREES = "agrees"
    BELOW = "below"
    ABOVE = "above"
    CANNOT_TELL = "cannot tell"
    NO_FIGURE = "no figure"


@dataclass(frozen=True)
class Target:
    """Published model whose settings are used, and whether its figures apply to the model at hand."""

    published: PublishedModel
    trial: bool
    """Whether the model at hand is another one of the family, to which no figure applies."""


@dataclass(frozen=True)
class PreparedRun:
    """Problems, wording and settings of one task, ready to be decoded."""

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
        """Number of solved problems shown before each problem."""
        return len(self.turns) // 2

    @property
    def forwards(self) -> int:
        """Largest number of forwards; a problem that does not fit costs none."""
        return len(self.chosen) * self.run.steps


@dataclass(frozen=True)
class VerifiedRun:
    """Result on one task: the measured share beside the published figure."""

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
        """Settings and figure of the authors."""
        return self.prepared.run

    @property
    def forwards(self) -> int:
        """Number of forwards of all answers."""
        return int(self.answers["forwards"].sum())


def published_names() -> list[str]:
    """List the names of the models with published settings."""
    return [model.name for model in PUBLISHED]


def choose_target(model: str, family: Any, published: str | None = None) -> Target:
    """Choose whose settings and figures to use: those of `published`, of the model by its name, or of its family."""
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
    """Return the named tasks without repeats; refuse one without published settings (of `model`, if it is given)."""
    published = find_published(model)
    known = list(dict.fromkeys(run.name for model in PUBLISHED for run in model.runs))
    for name in names:
        if published is not None:
            published.run(name)
        elif name not in known:
            raise UnknownName("task", name, known)
    return tuple(dict.fromkeys(names or DEFAULT_TASKS))


def check_data_files(names: Sequence[str], data_dir: DataDir = None) -> None:
    """Read the data sets of the tasks, so that a missing file is reported before a model is loaded."""
    for run in (run for model in PUBLISHED for run in model.runs if run.name in names):
        read_official_prompts(run.task, data_dir)


def prepare_run(
    model: LoadedModel, target: Target, name: str, *, prompts: int | None = None, data_dir: DataDir = None
) -> PreparedRun:
    """Prepare the first `prompts` problems of a task (default: all), as the authors put them.

    In a trial, a model with a short context is shown fewer solved problems; for a published model nothing is changed.
    """
    require(prompts is None or prompts >= 1, "prompts", prompts, "1 or more", "ask for at least one")
    run = target.published.run(name)
    official = read_official_prompts(run.task, data_dir)
    chosen = select_examples(published_task(run, official, 0), WHOLE_SPLIT, prompts=prompts)
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
    """Count how many solved problems can be shown with room for every answer; 0 if some do not fit at all."""
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
    """Decode and score one task, and compare with its figure; `work_dir` keeps every finished batch."""
    run = prepared.run
    plan = ComparePlan(
        tasks=[prepared.task],
        split=WHOLE_SPLIT,
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
    """Build the result of a task from its comparison: share, agreement and conclusion."""
    run, answers = prepared.run, comparison.answers
    judged = answers["utility"].dropna()
    right, unjudged = int((judged == 1.0).sum()), len(answers) - len(judged)
    share = wilson_interval(right, len(judged))
    agreement, conclusion = compare_share(run.figure, share, whole=len(judged) == prepared.problems)
    if agreement is Agreement.NO_FIGURE and target.trial:
        name = target.published.hub.partition("/")[2]
        conclusion = f"no published figure for this model: a trial of the procedure, says nothing about {name}"
    elif agreement is Agreement.NO_FIGURE:
        conclusion = f"no published figure of {target.published.hub} could be checked: there is nothing to compare with"
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
    """Compare a share of right answers with a published figure in percent; `whole` says that no problem is left out.

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
    if half > 100 * WIDE_INTERVAL:
        why = f"all {share.n} problems give no less" if whole else "n too small, take more problems"
        return Agreement.CANNOT_TELL, f"cannot tell: {why}; {figure:g} lies in the interval, {ends}, ±{half:.1f} points"
    return Agreement.AGREES, f"agrees: the published {figure:g} lies in the interval, {ends}"
