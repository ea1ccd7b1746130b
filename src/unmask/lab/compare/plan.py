"""What is compared: tasks, policies, prompts and settings, and the options that Python and the command line share."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field

from unmask.api import STEPS_SHARE, LoadedModel, count_steps, json_values
from unmask.axes import AXES
from unmask.base.errors import ConfigError, UnknownName, format_value, require
from unmask.base.files import replace_surrogates
from unmask.base.options import Options
from unmask.core import Policy, SamplingParams, Search
from unmask.lab.controls import ComputeMatchedControl, add_controls
from unmask.lab.study.config import FRESH, REFERENCES
from unmask.methods import (
    ANY_FAMILY,
    HEADS,
    METHODS,
    OURS,
    describe_policy,
    make_policy,
    method_status,
    parse_policy,
    preset_family,
    reference_of,
    shipped_heads,
    with_head,
)
from unmask.methods import candidates as candidate_sets
from unmask.models import ExactDenoiser
from unmask.stats import PROMPT_RESAMPLES
from unmask.tasks import CONTROLS, SPLITS, TASKS, Task, check_scorer, find_task, is_file_or_code, open_task

REFERENCE, ALL = "reference", "all"
FEW_PROMPTS = 10
"""Number of prompts of each task where no policy is named: a first look, not a result."""


class CompareOptions(Options):
    """Options of `unmask compare`: tasks, prompts, policies, settings and summary."""

    task: tuple[str, ...] = Field(
        ("constructed",),
        description="A task of `unmask tasks`, its controls included, `constructed`, or `all` for the ten. Repeatable. "
        "Default: constructed. Or one of your own, alone: FILE.jsonl, or code, which runs.",
    )
    scorer: str | None = Field(
        None, description="How answers to a task of your own are scored, as for `unmask calibrate`."
    )
    max_new_tokens: int | None = Field(None, ge=1, description="Tokens that an answer to a task of your own may take.")
    split: str | None = Field(
        None,
        description="development, validation, evaluation, or `fresh`: new prompts of the generators. Default: "
        "development; validation for a task of your own.",
    )
    prompts: int | None = Field(
        None,
        ge=1,
        description="The first so many of each task. Default: the whole split; 500 fresh; 10 if no policy is named.",
    )
    axis: tuple[str, ...] = Field(
        (), description="Candidates of score, region, cardinality or commitment, or `all`. Repeatable."
    )
    policy: tuple[str, ...] = Field(
        (),
        description="Another policy, e.g. wino:block_length=8; `all`: every published method that suits the model; "
        "`reference`: the model's own alone; or a class of your own, whose code runs: path.py:Class or "
        "package.module:Class, then :KEY=VALUE... Repeatable.",
    )
    compute_matched: bool = Field(
        False,
        description="With every search its base method, and best of n of that with as many forwards: the most probable "
        "of n answers, all but the first drawn at temperature 0.6.",
    )
    steps: int | None = Field(None, ge=1, description="Steps for every task. Default: half its horizon.")
    temperature: float = Field(0.0, ge=0, description="0 takes the most probable token, above 0 draws one.")
    batch_size: int | None = Field(
        None, ge=1, description="Rows decoded together. Default: what memory is sure to hold."
    )
    seed: int = Field(0, description="Seed of all random numbers, the bootstrap's included.")
    resamples: int = Field(PROMPT_RESAMPLES, ge=1, description="Bootstrap draws behind the intervals.")
    macro_without: tuple[str, ...] = Field(
        (), description="A task that is shown and left out of the mean over tasks. Repeatable."
    )
    warm_up: bool = Field(
        False, description="Decode each policy's first batch of a task once before its time is measured."
    )
    data_dir: Path | str | None = Field(None, description="Official data files. Default: $UNMASK_DATA, else the hub.")
    sandbox_workers: int | None = Field(
        None, ge=1, description="Programs run side by side (HumanEval). Default: all cores."
    )
    policies_from: Path | str | None = Field(
        None,
        description="summary.json of a run on other prompts: its best candidates go into the short table, and without "
        "--axis they are the ones decoded.",
    )

    @property
    def names_policies(self) -> bool:
        """Whether policies are named. If not, the comparison is a first look at methods that save forwards."""
        return bool(self.axis or self.policy or self.policies_from)


@dataclass(frozen=True, kw_only=True)
class ComparePlan:
    """Tasks, prompts, policies and settings of a comparison; the first policy is the reference."""

    tasks: Sequence[str | Task]
    split: str
    policies: Mapping[str, Policy | Search]
    prompts: int | None = None
    """Number of prompts of each task, from the start of the split; None for the whole split."""
    steps: int | None = None
    """Number of steps for every task; None for half of its new tokens."""
    temperature: float = 0.0
    seed: int = 0
    sampling: SamplingParams | None = None
    """Sampling parameters, where they are more than a temperature."""
    controls: Mapping[str, ComputeMatchedControl] = field(default_factory=dict)
    """Compute-matched controls, which are decoded after the policies."""

    def __post_init__(self) -> None:
        require(
            bool(self.policies), "policies", dict(self.policies), "one or more, the reference first", "name a policy"
        )
        require(self.prompts is None or self.prompts >= 1, "prompts", self.prompts, "1 or more", "ask for at least one")
        check_split(self.split)
        for name in (*self.policies, *self.controls):
            require(replace_surrogates(name) == name, "name of a policy", name, "whole characters", "rename it")
        names = [task.name for task in self.chosen_tasks]
        fits = bool(names) and len(set(names)) == len(names)
        require(fits, "tasks", names, "one or more, none twice", "change the list")

    @property
    def chosen_tasks(self) -> list[Task]:
        """Task objects, looked up where `tasks` has names of the suite."""
        return [find_task(task) if isinstance(task, str) else task for task in self.tasks]

    @property
    def arms(self) -> Mapping[str, Policy | Search | ComputeMatchedControl]:
        """Policies and controls by name, the reference first and the controls last."""
        return {**self.policies, **self.controls}

    @property
    def sampling_params(self) -> SamplingParams:
        """Sampling parameters of the comparison."""
        return self.sampling or SamplingParams(temperature=self.temperature)

    def steps_for(self, task: Task) -> int:
        """Return the plan's steps, or the usual share of the task's horizon."""
        if self.steps is None:
            return count_steps(STEPS_SHARE, task.max_new_tokens)
        allowed = f"1 to {task.max_new_tokens}, the horizon of {task.name}"
        require(1 <= self.steps <= task.max_new_tokens, "steps", self.steps, allowed, "lower it, or leave the task out")
        return self.steps

    def config(self, model: LoadedModel) -> dict[str, Any]:
        """Return the configuration in JSON's types, but for batch sizes and versions."""
        tasks = self.chosen_tasks
        config = {
            "model": {"name": model.name, **model.options},
            "device": str(model.denoiser.device),
            "tasks": {task.name: {"version": task.version, "horizon": task.max_new_tokens} for task in tasks},
            "split": self.split,
            "prompts": self.prompts,
            "temperature": self.temperature,
            "seed": self.seed,
            "policies": {name: describe_policy(policy) for name, policy in self.policies.items()},
            "methods": {name: method_status(policy) for name, policy in self.policies.items()},
            "steps": {task.name: self.steps_for(task) for task in tasks},
            # stored name
            **({"proposal": asdict(self.sampling)} if self.sampling is not None else {}),
            **({"matched": {name: c.describe() for name, c in self.controls.items()}} if self.controls else {}),
        }
        plain: dict[str, Any] = json.loads(
            replace_surrogates(json.dumps(json_values(config), ensure_ascii=False, allow_nan=False))
        )
        return plain


# From options to a plan


def plan_comparison(
    model: LoadedModel,
    options: CompareOptions,
    tasks: Sequence[Task],
    picks: Mapping[str, str] | None = None,
    on_note: Callable[[str], None] = lambda text: None,
) -> ComparePlan:
    """Choose the policies of a comparison: the reference, candidates of the axes, and those that options or picks name.

    Where nobody names a policy, the reference is compared with the methods that may save forwards, on a few prompts.
    `tasks` are those of `open_tasks`; `on_note` gets lines on what was chosen and what was left out.
    """
    family = preset_family(model.reference, model.options)
    named = parse_policies(options.policy, family)
    prompts = options.prompts
    if not options.names_policies:
        prompts = options.prompts or FEW_PROMPTS
        suitable, _ = make_suitable_methods(model.reference, _methods_with_heads(model))
        named = select_saving_methods(suitable)
        on_note(
            f"no policy is named: the reference beside {len(named)} of {len(suitable)} methods, those that may need "
            f"fewer forwards and never look ahead ({', '.join(named)}), on {prompts} prompts of each task"
        )
        on_note(
            f"also: --policy NAME, of `unmask methods`; --policy all; --policy {REFERENCE} for that alone; --axis "
            f"{', '.join(AXES)} or all; --prompts N"
        )
    elif any(text.strip() == ALL for text in options.policy):
        suitable, others = make_suitable_methods(model.reference, _methods_with_heads(model))
        by_reason: dict[str, list[str]] = {}
        for name, reason in others.items():
            by_reason.setdefault(reason, []).append(name)
        left_out = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
        on_note(f"--policy all: {len(suitable)} methods, without {left_out}")
        named = {**suitable, **named}
    axes = order_axes(options.axis)
    # The candidates that were chosen elsewhere are decoded alone, unless axes are named as well.
    only = {*picks.values()} - {*named, REFERENCE} if picks is not None and not axes else None
    exact = isinstance(model.denoiser, ExactDenoiser)
    policies = {
        name: with_head(policy, model.name, model.fingerprint, exact)
        for name, policy in {**_candidates(model.reference, axes, only), **named}.items()
    }
    controls: dict[str, ComputeMatchedControl] = {}
    if options.compute_matched:
        policies, controls = add_controls(policies)
        if not controls:
            raise ConfigError(
                "--compute-matched is given without a search; allowed: with --policy soar or such; name one"
            )
    return ComparePlan(
        tasks=tasks,
        split=default_split(options, tasks),
        policies=policies,
        controls=controls,
        prompts=prompts,
        steps=options.steps,
        temperature=options.temperature,
        seed=options.seed,
    )


def open_tasks(options: CompareOptions) -> list[Task]:
    """Open the tasks in the order of the suite's table, controls last; or a task of the user's own, whose code runs."""
    given = options.task
    if any(map(is_file_or_code, given)) or options.scorer is not None or options.max_new_tokens is not None:
        if len(given) > 1:
            raise ConfigError(
                f"--task is {', '.join(map(format_value, given))}; allowed: a task of your own alone, or those of the "
                "suite without --scorer and --max-new-tokens; compare them one after the other"
            )
        task = open_task(given[0], scorer=options.scorer, max_new_tokens=options.max_new_tokens)
        check_scorer(task)
        tasks = [task]
    else:
        groups = {ALL: [*TASKS], "constructed": [name for name, task in TASKS.items() if task.generator]}
        wanted: set[str] = set()
        for name in given:
            if name not in (*groups, *TASKS, *CONTROLS):
                raise UnknownName("task", name, [*groups, *TASKS, *CONTROLS])
            wanted |= set(groups.get(name, [name]))
        tasks = [task for name, task in {**TASKS, **CONTROLS}.items() if name in wanted]
    for name in options.macro_without:
        if name not in (names := [task.name for task in tasks]):
            raise UnknownName("task of macro_without", name, names)
    return tasks


def default_split(options: CompareOptions, tasks: Sequence[Task]) -> str:
    """Return the requested split; by default development, or validation for tasks of the user's own, which lack it."""
    own = any(is_file_or_code(task.source) for task in tasks)
    return options.split or ("validation" if own else "development")


def check_split(split: str | None) -> None:
    """Refuse an unknown split."""
    if split is not None and split not in (*SPLITS, FRESH):
        raise UnknownName("split", split, (*SPLITS, FRESH))


def order_axes(given: Sequence[str]) -> list[str]:
    """Sort the given axes into the usual order, each once; `all` stands for every one."""
    for name in given:
        if name not in (*AXES, ALL):
            raise UnknownName("axis", name, (*AXES, ALL))
    return [name for name in AXES if name in given or ALL in given]


def parse_policies(given: Sequence[str], family: str = ANY_FAMILY) -> dict[str, Policy | Search]:
    """Make the named policies, labelled as they were written; this runs classes of the user's own."""
    policies: dict[str, Policy | Search] = {}
    for text in given:
        if text.strip() in (ALL, REFERENCE):
            continue
        # An argument that is no UTF-8 names a file just the same, but no result could hold it.
        label = replace_surrogates(text.strip())
        if label in policies:
            raise ConfigError(f"--policy {label} is given twice; allowed: once; drop one of them")
        policies[label] = parse_policy(text, family=family)
    return policies


def _candidates(reference: str, axes: Sequence[str], only: Collection[str] | None) -> dict[str, Policy | Search]:
    """Return the reference, then every other candidate of the axes, none twice; or those of all axes in `only`."""
    if reference not in REFERENCES and not axes and not only and reference in METHODS:
        return {REFERENCE: make_policy(reference)}
    sets = candidate_sets(reference)
    policies: dict[str, Policy | Search] = {REFERENCE: reference_of(sets)}
    # Two axes may have the same candidate, such as the reference itself; it is decoded once.
    for axis in axes if only is None else AXES:
        policies |= {f"{axis}={name}": p for name, p in sets[axis].items() if p not in policies.values()}
    if only is None:
        return policies
    for name in only:
        if name not in policies and name.partition("=")[0] not in AXES:
            raise ConfigError(
                f"--policies-from names {name!r}, no candidate of an axis; allowed: with --policy; give it again"
            )
        if name not in policies:
            raise UnknownName("candidate of --policies-from", name, policies)
    return {name: policy for name, policy in policies.items() if name == REFERENCE or name in only}


# Which published methods suit a model

OF_ONE_KIND: Mapping[str, str] = MappingProxyType(
    {"llada": "llada", "fast-dllm": "llada", "remdm-llada": "llada", "dream": "dream", "fast-dllm-dream": "dream"}
)
"""Methods whose authors wrote their loop for one kind of model, with the reference of that kind."""
_SETTINGS: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType({("dream", "klass"): {"variant": "dream"}})
"""Settings that choose the right loop where one class holds the loops of both kinds of models."""


def make_suitable_methods(
    reference: str, heads: Collection[str] = ()
) -> tuple[dict[str, Policy | Search], dict[str, str]]:
    """Make every published method at its defaults for models of this reference; return the others with the reason.

    `heads` are the learned methods that have a head for the model, or need none with it.
    """
    chosen: dict[str, Policy | Search] = {}
    others: dict[str, str] = {}
    for name, method in METHODS.items():
        kind = OF_ONE_KIND.get(name)
        if method.label == OURS:
            others[name] = "this library's own, no published method"
        elif name == reference:
            others[name] = "it is the reference"
        elif kind is not None and kind != reference and reference in OF_ONE_KIND.values():
            others[name] = f"its authors' loop for models like {kind}"
        elif method.learned and name not in heads:
            others[name] = "needs a learned part beside the model"
        else:
            settings = _SETTINGS.get((reference, name), {})
            label = ":".join([name, *([",".join(f"{k}={v}" for k, v in settings.items())] if settings else [])])
            chosen[label] = make_policy(name, **settings)
    return chosen, others


def select_saving_methods(methods: Mapping[str, Policy | Search]) -> dict[str, Policy | Search]:
    """Select methods that may need fewer forwards than the reference and never look ahead.

    Steps do not bind them: they reveal as much at once as they trust. Methods that are made for other settings than a
    run's defaults are left out. A first look at them costs less than the reference itself.
    """
    return {
        name: method
        for name, method in methods.items()
        if isinstance(method, Policy)
        and not (method.looks_ahead or method.steps == "end" or method.random)
        and not method_status(method).get("made_for")
    }


def _methods_with_heads(model: LoadedModel) -> list[str]:
    """Return the learned methods that have a head for the model, or need none with it."""
    exact = isinstance(model.denoiser, ExactDenoiser)
    return [kind for kind in HEADS if exact or model.fingerprint in shipped_heads(kind)]
