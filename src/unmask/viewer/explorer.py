"""What the explorer does for a page, in a worker's thread: decode, branch, score, and say it in plain values."""

import math
from collections.abc import Callable
from typing import Any

from unmask import __version__
from unmask.api import Generation, Model
from unmask.base.errors import ConfigError, OtherModel, UnknownName
from unmask.base.files import storable
from unmask.core import ModelInput, Needs, SamplingParams, Search, Trajectory, map_tensors
from unmask.engine import StepSettings, predict
from unmask.lab.study.prompts import score_texts
from unmask.methods import METHODS, describe_policy
from unmask.report.run_data import run_data, token_speller
from unmask.tasks import CONTROLS, SPLITS, TASKS, DataDir, Example, find_task
from unmask.viewer import deviations, watching
from unmask.viewer.asked import RUN_OPTIONS, AskedBranch, AskedRun, TaskPrompt
from unmask.viewer.models import LoadedModels
from unmask.viewer.sessions import KeptRun, KeptRuns, PageWork
from unmask.viewer.studies import StudyFolder

Plain = dict[str, Any]
PAGE = 25
"""Prompts of a task that a page lists at once."""
SUGGESTED = 8
"""Tokens that are offered at a masked position."""
MOST_ROWS = 50
"""Rows of a trajectory's file that pages may look at."""


class Explorer:
    """Models, a study's folder, and the runs that came out; every method may be called from any thread."""

    def __init__(self, models: LoadedModels, study: StudyFolder | None = None, data_dir: DataDir = None):
        self.models, self.study, self.data_dir = models, study, data_dir
        self.runs = KeptRuns()
        self.opened: list[KeptRun] = []
        """The rows of a trajectory's file."""

    # What there is

    def about(self) -> Plain:
        """All that a page needs before anything is decoded."""
        return {
            "version": __version__,
            "models": [{"name": name, "loaded": self.models.there(name)} for name in self.models.names],
            "study": None if self.study is None else self.study.summary(),
            "tasks": [_about_task(name) for name in (*TASKS, *CONTROLS)],
            "methods": [_about_method(name) for name in METHODS],
            "options": RUN_OPTIONS,
            "opened": [{"run": run.id, "prompt": run.record["prompt"]} for run in self.opened],
        }

    def prompts_of(self, task: str, split: str, start: int) -> Plain:
        """Some prompts of a task's split."""
        if task not in (*TASKS, *CONTROLS):
            raise UnknownName("task", task, (*TASKS, *CONTROLS))
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        members = find_task(task).examples(split, self.data_dir)
        shown = members[start : start + PAGE]
        return {
            "total": len(members),
            "start": start,
            "prompts": [{"id": one.id, "text": storable(one.prompt), "level": one.level} for one in shown],
        }

    def told(self, run: KeptRun) -> Plain:
        """A run as a page gets it, with what can be done at its states."""
        model = self.models.get(run.model)
        return {
            "run": run.id,
            "record": run.record,
            "model": run.model,
            "judged": run.example is not None,
            "forwards": int(run.trajectory.forwards_B[run.row]),
            "choices": deviations.choices(model, run.model, self.study),
        }

    def of_study(self) -> StudyFolder:
        if self.study is None:
            raise ConfigError("no study is open; allowed: `unmask view FOLDER`; start it with the study's folder")
        return self.study

    # Runs

    def run(self, job: PageWork, asked: AskedRun) -> None:
        """Decode a prompt; told step by step."""
        model = self._model(job, asked.model)
        if asked.of_task is not None and asked.of_task.study:
            self._run_of_study(job, model, asked.model, asked.of_task)
            return
        example = None if asked.of_task is None else self._example(asked.of_task)
        keywords: Plain = {**asked.options, **asked.settings}
        if example is not None and keywords.get("max_new_tokens") is None:
            keywords["max_new_tokens"] = find_task(example.task).max_new_tokens
        prompt = example.prompt if example is not None else asked.prompt or ""
        policy = asked.policy or model.reference
        decode: Callable[..., Generation] = model.generate
        if example is None and "[MASK" in prompt:
            decode = model.infill
            keywords.pop("max_new_tokens", None)
        on_step = self._watching(job, model, asked.model, prompt, policy)
        done = decode(prompt, policy=asked.policy, on_step=on_step, **keywords)
        kept = self._keep(asked.model, model, done, example)
        job.tell("end", self.told(kept) | {"notes": []})

    def _run_of_study(self, job: PageWork, model: Model, name: str, asked: TaskPrompt) -> None:
        """A prompt of the study as the study decodes it: the run that its states lie on."""
        study = self.of_study()
        example = study.example(asked.task, asked.split, asked.id)
        policy = study.reference(name)
        on_step = self._watching(job, model, name, example.prompt, policy.name)
        done = model.generate(example.prompt, policy=policy, on_step=on_step, **study.options(asked.task))
        kept = self._keep(name, model, done, example, study.scoring, f"the study's reference ({policy.name})")
        stored = study.stored(name, asked.task, asked.split, asked.id)
        job.tell("end", self.told(kept) | {"notes": _compared(done.trajectory, stored)})

    def branch(self, job: PageWork, asked: AskedBranch) -> None:
        """Go on from a state of a run otherwise; told step by step."""
        parent = self.runs.get(asked.run)
        model = self._model(job, parent.model)
        start = parent.trajectory.resume(parent.row, asked.step)
        keywords = deviations.keywords(asked, model, parent.model, start.state, self.study)
        label = deviations.described(asked, model)
        job.tell("start", {"record": watching.prefix(parent.record, asked.step, label)})
        goes_on = keywords.get("policy") or (parent.run.policy if isinstance(parent.run, Generation) else None)
        if watching.is_search(goes_on):
            on_step = watching.watching_search(job)
        else:
            on_step = watching.watching_branch(job, model.codec, start.state, label)
        done = model.branch(parent.run, row=parent.row, step=asked.step, on_step=on_step, **keywords)
        kept = self._keep(parent.model, model, done, parent.example, parent.scoring, label)
        about = {"run": parent.id, "step": asked.step, "label": label}
        job.tell("end", self.told(kept) | {"notes": [], "branch": about})

    def suggestions(self, run: str, step: int, position: int) -> Plain:
        """The most probable tokens at a masked position of a state: one forward."""
        parent = self.runs.get(run)
        model = self.models.get(parent.model)
        start = map_tensors(parent.trajectory.resume(parent.row, step), lambda tensor: tensor.to(model.denoiser.device))
        deviations.check_masked(start.state, position)
        needs = Needs(top_k=min(SUGGESTED, model.denoiser.vocabulary.size))
        settings = StepSettings(model.denoiser, start.sampling or SamplingParams())
        seen = predict(settings, start, ModelInput.of(start.state, needs), needs)[0].current_prediction.clean
        spell, ids, shares = (
            token_speller(model.codec),
            seen.top_BNK[0, position].tolist(),
            seen.p_BNK[0, position].tolist(),
        )
        offered = [{"token": t, "text": spell(t), "p": round(p, 4)} for t, p in zip(ids, shares, strict=True) if p > 0]
        return {"position": position, "tokens": offered}

    def open(self, trajectory: Trajectory, name: str) -> None:
        """The rows of a run from a file, ready to be looked at and branched from."""
        model = self.models.get(name)
        made_by = (trajectory.config or {}).get("fingerprint")
        if made_by != model.fingerprint:
            raise OtherModel(
                f"the run was decoded with another model ({made_by}) than {name} ({model.fingerprint}); allowed: a run "
                "of the same model; name it: --model"
            )
        for row in range(min(trajectory.state.batch, MOST_ROWS)):
            record = run_data(trajectory, row, model.codec)
            self.opened.append(self.runs.keep(KeptRun(trajectory, record, name, row=row)))

    def _model(self, job: PageWork, name: str) -> Model:
        if name in self.models.names and not self.models.there(name):
            job.tell("loading", {"model": name})
        return self.models.get(name)

    def _example(self, asked: TaskPrompt) -> Example:
        for one in find_task(asked.task).examples(asked.split, self.data_dir):
            if one.id == asked.id:
                return one
        raise ConfigError(
            f"{asked.id} is no {asked.split} prompt of {asked.task}; allowed: those of the list; reload it"
        )

    def _watching(self, job: PageWork, model: Model, name: str, prompt: str, policy: str) -> watching.OnStep:
        if watching.is_search(policy):
            return watching.watching_search(job)
        return watching.watching(job, model.codec, prompt=prompt, model=name, policy=policy)

    def _keep(
        self, name: str, model: Model, done: Generation, example: Example | None, scoring: str = "ours", label: str = ""
    ) -> KeptRun:
        """Score an answer to a task's prompt; nobody can score any other, and no number is made up for it."""
        utility, reason = None, None
        if example is not None:
            ((value, reason),) = score_texts([(storable(done.texts[0]), example)], 1, scoring)
            utility = None if math.isnan(value) else value
        policy = label or done.policy.name
        record = run_data(done.trajectory, 0, model.codec, model=name, policy=policy, score=utility, explanation=reason)
        return self.runs.keep(KeptRun(done, record, name, example, scoring))


def _compared(run: Trajectory, stored: list[tuple[int, list[int]]]) -> list[str]:
    """Whether a repeated run goes through the states that a study stored."""
    canvases = [canvas[: int(run.state.length_B[0])].tolist() for canvas in run.canvases()]
    other = [step for step, tokens in stored if step >= len(canvases) or canvases[step] != tokens]
    if not other:
        return []
    return [
        f"this run is not the study's own: its state at step {other[0]} differs from the stored one; another machine, "
        "version or model rounds differently"
    ]


def _about_task(name: str) -> Plain:
    task = find_task(name)
    return {"name": name, "title": task.title, "horizon": task.max_new_tokens, "counts": dict(task.counts)}


def _about_method(name: str) -> Plain:
    """Its settings are those that a page may change: plain values of its own."""
    method = METHODS[name]
    own = {key: value for key, value in describe_policy(method.default).items() if key != "name"}
    return {
        "name": name,
        "about": method.about,
        "search": issubclass(method.kind, Search),
        "settings": {key: value for key, value in own.items() if _is_plain(value)},
    }


def _is_plain(value: Any) -> bool:
    """Whether JSON has it, and a field of a form can hold it."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)
