"""`unmask.calibrate`: a gate for a task that is named, with a folder for the measurements if nobody gives one."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from unmask.adapt import Gate
from unmask.api import LoadedModel
from unmask.base.errors import UnknownName, require
from unmask.core import Policy
from unmask.lab.calibrate import calibrate as measure
from unmask.methods import register_reference
from unmask.tasks import check_scorer, open_task

_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("task", "axis"), str),
    **dict.fromkeys(("prompts", "states", "rollouts", "seed"), int),
    **dict.fromkeys(("rows", "jobs", "horizon"), int | None),
    "steps_share": int | float,
    "fixed": str,
    **dict.fromkeys(("guarantee", "margin"), int | float | None),
    "score": str | None,
    "work": str | Path | None,
}


def calibrate(
    model: LoadedModel,
    *,
    task: str,
    axis: str,
    score: str | None = None,
    horizon: int | None = None,
    work: str | Path | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> Gate:
    """When to leave the fixed action on a task: a gate for `model.generate(..., gate=gate)`, or to `save`.

    `task` is a name of the suite, a JSONL file or a dotted Python name; the last two need a scoring rule, `score`, and
    the tokens that an answer may take, `horizon`. `work` is a folder that keeps the measurements, so that a call that
    was cut short can be repeated; without one they are thrown away. `policy` is what decodes in place of the model's
    own reference, and what candidates are made around; whoever uses the gate has to pass it again.

    Further options, with their defaults: prompts=100, states=8, rollouts=4, steps_share=0.5, seed=0, rows=None,
    fixed="end-to-end", guarantee=None, margin=None, data_dir=None, jobs=None, on_progress. docs/adapt.md says what
    they do.
    """
    named = ("model", "task", "axis", "work")
    allowed = [name for name in inspect.signature(measure).parameters if name not in named]
    for name in options:
        if name not in allowed:
            raise UnknownName("option of calibrate", name, [*allowed, "score", "horizon", "work"])
    _check_types(model, {"task": task, "axis": axis, "score": score, "horizon": horizon, "work": work, **options})
    if policy is not None:
        ok = isinstance(policy, Policy)
        require(ok, "policy", policy, "a policy object, or None", "e.g. policy=KLASS()")
        model = replace(model, reference=register_reference(policy))  # type: ignore[type-var]
    chosen = open_task(task, scorer=score, max_new_tokens=horizon)
    check_scorer(chosen)
    if work is not None:
        return measure(model, chosen, axis, work=work, **options)
    with TemporaryDirectory(prefix="unmask-") as folder:
        return measure(model, chosen, axis, work=folder, **options)


def _check_types(model: Any, given: Mapping[str, Any]) -> None:
    loaded = all(hasattr(model, name) for name in ("denoiser", "codec", "reference", "fingerprint"))
    require(loaded, "model", model, "a loaded model", "e.g. unmask.load('mini')")
    for name, value in given.items():
        hint = _TYPES.get(name)
        if hint is not None:
            shown = getattr(hint, "__name__", str(hint))
            # A truth value is an int to Python, and no number to us.
            ok = isinstance(value, hint) and not isinstance(value, bool)
            require(ok, f"{name} of calibrate", value, f"{shown}", "docs/adapt.md describes it")
