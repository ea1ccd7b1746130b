"""The explorer's actions for a page: decode, branch, suggest tokens, list prompts, all in plain values.

`run` and `branch` send events while they decode; everything else returns at once. Every method may be called from any
thread.
"""

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from unmask import __version__
from unmask.api import Generation, Model
from unmask.axes import score
from unmask.base.errors import ConfigError, OtherModel, UnknownName, require
from unmask.base.files import replace_surrogates
from unmask.core import Action, ModelInput, Needs, Policy, SamplingParams, Search, State, Step, Trajectory, map_tensors
from unmask.engine import StepSettings, predict
from unmask.lab.study.prompts import score_texts
from unmask.methods import METHODS, candidate, candidates, make_policy, with_head
from unmask.models import ExactDenoiser
from unmask.report.run_data import FORMAT, RunData, Spell, end_tokens, run_data, step_data, token_speller, token_texts
from unmask.tasks import CONTROLS, SPLITS, TASKS, DataDir, Example, find_task
from unmask.viewer.jobs import KeptRun, KeptRuns, PageJob
from unmask.viewer.page_requests import BranchChange, BranchRequest, RunRequest, TaskPrompt, plain_settings
from unmask.viewer.studies import StudyFolder

Json = dict[str, Any]
PAGE = 25
"""Prompts of a task that a page lists at once."""
SUGGESTED = 8
"""Tokens that are suggested at a masked position."""
MOST_ROWS = 50
"""Rows of a trajectory's file that pages may look at."""


class LoadedModels:
    """Models by name, each loaded when it is first needed, by whichever thread needs it."""

    def __init__(self, loaders: Mapping[str, Callable[[], Model]]):
        self._loaders = dict(loaders)
        self.loaded: dict[str, Model] = {}
        self._locks = {name: threading.Lock() for name in loaders}

    @property
    def names(self) -> list[str]:
        return list(self._loaders)

    def get(self, name: str) -> Model:
        """Return a model; while it is being loaded, every thread that asks for it waits."""
        if name not in self._loaders:
            raise UnknownName("model", name, self._loaders)
        with self._locks[name]:
            if name not in self.loaded:
                self.loaded[name] = self._loaders[name]()
            return self.loaded[name]


class Explorer:
    """Models, a study's folder, and the runs that were decoded."""

    def __init__(self, models: LoadedModels, study: StudyFolder | None = None, data_dir: DataDir = None):
        self.models, self.study, self.data_dir = models, study, data_dir
        self.runs = KeptRuns()
        self.opened: list[KeptRun] = []
        """Rows of a trajectory's file."""

    # Lists

    def about(self) -> Json:
        """Return all that a page needs before anything is decoded."""
        tasks = [find_task(name) for name in (*TASKS, *CONTROLS)]
        return {
            "version": __version__,
            "models": [{"name": name, "example": self._example_prompt(name)} for name in self.models.names],
            "study": None if self.study is None else self.study.summary(),
            "tasks": [{"name": task.name, "title": task.title, "counts": dict(task.counts)} for task in tasks],
            "methods": [
                {"name": name, "about": method.about, "settings": plain_settings(name)}
                for name, method in METHODS.items()
            ],
            "opened": [{"run": run.id, "prompt": run.data["prompt"]} for run in self.opened],
        }

    def _example_prompt(self, name: str) -> str:
        """Return the prompt that a loaded model is tried with; a model of a study is loaded only when it decodes."""
        model = self.models.loaded.get(name)
        return model.default_prompt if model is not None and isinstance(model.default_prompt, str) else ""

    def list_prompts(self, task: str, split: str, start: int) -> Json:
        """Return some prompts of a task's split."""
        if task not in (*TASKS, *CONTROLS):
            raise UnknownName("task", task, (*TASKS, *CONTROLS))
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        examples = find_task(task).examples(split, self.data_dir)
        page = examples[start : start + PAGE]
        prompts = [{"id": one.id, "text": replace_surrogates(one.prompt), "level": one.level} for one in page]
        return {"total": len(examples), "start": start, "prompts": prompts}

    def study_prompts(self, model: str, task: str, split: str) -> list[Json]:
        """Return the prompts of a study's model, task and split."""
        return self._open_study().prompts(model, task, split)

    def study_states(self, model: str, task: str, split: str, prompt: str) -> list[Json]:
        """Return the states of one prompt of a study."""
        return self._open_study().states(model, task, split, prompt)

    def _open_study(self) -> StudyFolder:
        if self.study is None:
            raise ConfigError("no study is open; allowed: `unmask view FOLDER`; start it with the study's folder")
        return self.study

    def find_run(self, id: str) -> Json:
        """Return a run that was decoded before, or opened from a file."""
        return self.run_payload(self.runs.get(id))

    def run_payload(self, run: KeptRun, notes: list[str] | None = None) -> Json:
        """Return a run as JSON for the page, with the candidate actions that its model offers at a state."""
        return {
            "run": run.id,
            "record": run.data,
            "model": run.model,
            "judged": run.example is not None,
            "forwards": int(run.trajectory.forwards_B[run.row]),
            "choices": self._candidate_names(self.models.get(run.model), run.model),
            "notes": notes or [],
        }

    # Decoding

    def run(self, job: PageJob, wanted: RunRequest) -> None:
        """Decode a prompt and send its steps."""
        model = self._load_model(job, wanted.model)
        if wanted.task is not None and wanted.task.study:
            self._repeat_study_run(job, model, wanted.model, wanted.task)
            return
        example = None if wanted.task is None else self._find_example(wanted.task)
        options: Json = {**{name: value for name, value in wanted.options if value is not None}, **wanted.settings}
        if example is not None:
            options = {"max_new_tokens": find_task(example.task).max_new_tokens, **options}
        prompt = example.prompt if example is not None else wanted.prompt or ""
        decode: Callable[..., Generation] = model.generate
        if example is None and "[MASK" in prompt:
            decode = model.infill
            options.pop("max_new_tokens", None)
        on_step = follow_run(job, model, prompt, wanted.model, wanted.policy or model.reference)
        done = decode(prompt, policy=wanted.policy, on_step=on_step, **options)
        job.send("end", self.run_payload(self._store_run(wanted.model, model, done, example)))

    def _repeat_study_run(self, job: PageJob, model: Model, name: str, wanted: TaskPrompt) -> None:
        """Decode a prompt of the study as the study did, so that its stored states lie on this run."""
        study = self._open_study()
        example, policy = study.example(wanted.task, wanted.split, wanted.id), study.reference(name)
        on_step = follow_run(job, model, example.prompt, name, policy.name)
        done = model.generate(example.prompt, policy=policy, on_step=on_step, **study.options(wanted.task))
        label = f"the study's reference ({policy.name})"
        kept = self._store_run(name, model, done, example, study.scoring, label)
        canvases = [canvas[: int(done.trajectory.state.length_B[0])].tolist() for canvas in done.trajectory.canvases()]
        stored = study.stored_states(name, wanted.task, wanted.split, wanted.id)
        other = [step for step, tokens in stored if step >= len(canvases) or canvases[step] != tokens]
        notes = [
            f"this run is not the study's own: its state at step {step} differs from the stored one; another machine, "
            "version or model rounds differently"
            for step in other[:1]
        ]
        job.send("end", self.run_payload(kept, notes))

    def branch(self, job: PageJob, wanted: BranchRequest) -> None:
        """Continue a run from one of its states with a change, and send the steps of the branch."""
        parent = self.runs.get(wanted.run)
        model = self._load_model(job, parent.model)
        start = parent.trajectory.resume(parent.row, wanted.step)
        options, label = self._branch_options(wanted, model, parent.model, start.state)
        # The run as far as the state where the other future begins.
        unknown = {"text": "", "score": None, "explanation": None, "filler": [False] * len(parent.data["tokens"])}
        steps, fillers = parent.data["steps"][: wanted.step], _filler_texts(model)
        data = {**parent.data, **unknown, "policy": label, "steps": steps, "fillers": fillers}
        job.send("start", {"record": data})
        policy = options.get("policy") or (parent.run.policy if isinstance(parent.run, Generation) else None)
        on_step = follow_branch(job, model, start.state, label, policy)
        done = model.branch(parent.run, row=parent.row, step=wanted.step, on_step=on_step, **options)
        kept = self._store_run(parent.model, model, done, parent.example, parent.scoring, label)
        job.send("end", self.run_payload(kept))

    def open(self, trajectory: Trajectory, name: str) -> None:
        """Open the rows of a run from a file, so that they can be looked at and branched from."""
        model = self.models.get(name)
        made_by = (trajectory.config or {}).get("fingerprint")
        if made_by != model.fingerprint:
            raise OtherModel(
                f"the run was decoded with another model ({made_by}) than {name} ({model.fingerprint}); allowed: a run "
                "of the same model; name it: --model"
            )
        for row in range(min(trajectory.state.batch, MOST_ROWS)):
            data = run_data(trajectory, row, model.codec)
            self.opened.append(self.runs.add(KeptRun(trajectory, data, name, row=row)))

    def _load_model(self, job: PageJob, name: str) -> Model:
        if name in self.models.names and name not in self.models.loaded:
            job.send("loading", {"model": name})
        return self.models.get(name)

    def _find_example(self, wanted: TaskPrompt) -> Example:
        for example in find_task(wanted.task).examples(wanted.split, self.data_dir):
            if example.id == wanted.id:
                return example
        raise ConfigError(
            f"{wanted.id} is no {wanted.split} prompt of {wanted.task}; allowed: those of the list; reload it"
        )

    def _store_run(
        self, name: str, model: Model, done: Generation, example: Example | None, scoring: str = "ours", label: str = ""
    ) -> KeptRun:
        """Store a finished run for later requests, with a score if its prompt is one of a task."""
        utility, reason = None, None
        if example is not None:
            ((value, reason),) = score_texts([(replace_surrogates(done.texts[0]), example)], 1, scoring)
            utility = None if math.isnan(value) else value
        policy = label or done.policy.name
        data = run_data(done.trajectory, 0, model.codec, model=name, policy=policy, score=utility, explanation=reason)
        return self.runs.add(KeptRun(done, data, name, example, scoring))

    # Changes at a state

    def _candidate_names(self, model: Model, name: str) -> dict[str, list[str]]:
        """Return the candidates by axis: the study's own first where the model is one of its models."""
        usual = {axis: list(named) for axis, named in candidates(model.reference).items()}
        own = self.study.candidate_names(name) if self.study is not None and name in self.study.specs else {}
        return {axis: list(dict.fromkeys([*own.get(axis, ()), *named])) for axis, named in usual.items()}

    def _branch_options(self, wanted: BranchRequest, model: Model, name: str, state: State) -> tuple[Json, str]:
        """Return the change as options of `Model.branch`, and in words."""
        change = wanted.instead
        if change.position is not None:
            token = _find_token(change, model)
            action = _reveal_one(state, change.position, token)
            return {"action": action}, f"{model.codec.decode([token])!r} by hand at position {change.position}"
        label = change.policy or f"{change.axis} {change.candidate}"
        label += f" from step {wanted.step + 1} on" if wanted.rest else f" at step {wanted.step + 1}"
        if change.policy is not None and wanted.rest:
            return {"policy": change.policy, **change.settings}, label
        policy = self._find_candidate(change, model, name) if change.policy is None else _make_step(change, model)
        return {"policy" if wanted.rest else "action": policy}, label

    def _find_candidate(self, change: BranchChange, model: Model, name: str) -> Policy:
        axis, wanted = str(change.axis), str(change.candidate)
        known = self._candidate_names(model, name).get(axis, [])
        if wanted not in known:
            raise UnknownName(f"candidate of {axis}", wanted, known)
        study = self.study
        if study is not None and name in study.specs and wanted in study.candidate_names(name).get(axis, ()):
            return study.candidate(name, axis, wanted)
        return candidate(model.reference, axis, wanted)

    def suggest_tokens(self, run: str, step: int, position: int) -> Json:
        """Return the most probable tokens at a masked position of a state, by one forward."""
        parent = self.runs.get(run)
        model = self.models.get(parent.model)
        start = map_tensors(parent.trajectory.resume(parent.row, step), lambda tensor: tensor.to(model.denoiser.device))
        _check_masked(start.state, position)
        needs = Needs(top_k=min(SUGGESTED, model.denoiser.vocabulary.size))
        settings = StepSettings(model.denoiser, start.sampling or SamplingParams())
        clean = predict(settings, start, ModelInput.of(start.state, needs), needs)[0].current_prediction.clean
        spell = token_speller(model.codec)
        tokens, shares = (x[0, position].tolist() for x in (clean.top_BNK, clean.p_BNK))
        found = [{"token": t, "text": spell(t), "p": round(p, 4)} for t, p in zip(tokens, shares, strict=True) if p > 0]
        return {"position": position, "tokens": found}


def _make_step(change: BranchChange, model: Model) -> Policy:
    """Make a registered method that takes one step."""
    policy = make_policy(str(change.policy), **change.settings)
    policy = with_head(policy, model.name, model.fingerprint, isinstance(model.denoiser, ExactDenoiser))
    if not isinstance(policy, Policy):
        raise ConfigError(f"{policy.name} owns its loop and takes no single step; allowed: from here on; choose that")
    return policy


def _find_token(change: BranchChange, model: Model) -> int:
    """Return the token that a change names by its number or by its text."""
    vocabulary = model.denoiser.vocabulary
    if change.token is not None:
        ok = change.token < vocabulary.size and change.token != vocabulary.mask_id
        require(ok, "token", change.token, f"0 to {vocabulary.size - 1}, not the mask", "choose another")
        return change.token
    tokens = model.codec.canvas(change.text or "")
    if len(tokens) != 1 or tokens[0] == vocabulary.mask_id:
        parts = ", ".join(repr(model.codec.decode([token])) for token in tokens[:8])
        raise ConfigError(
            f"{change.text!r} is {len(tokens)} tokens ({parts}); allowed: one token, which for most words holds the "
            "space before; choose one of those that are offered, or a part"
        )
    return tokens[0]


def _check_masked(state: State, position: int) -> None:
    masked = state.masked_BL[0].nonzero().flatten().tolist()
    allowed = "a masked one: " + ", ".join(map(str, masked[:12])) + (", ..." if len(masked) > 12 else "")
    require(position in masked, "position", position, allowed, "choose another, or an earlier step")


def _reveal_one(state: State, position: int, token: int) -> Action:
    """Return the action that reveals this token at this position, and nothing else."""
    _check_masked(state, position)
    here_BL = torch.zeros_like(state.masked_BL)
    here_BL[0, position] = True
    return Action(
        score.alpha_rows("confidence", state),
        here_BL,
        torch.ones(1, device=here_BL.device),
        commit_BL=here_BL,
        tokens_BL=torch.where(here_BL, token, -1),
        rule="confidence",
    )


# Following a run

OnStep = Callable[[Trajectory], None]
SendFirst = Callable[[Step, Spell], None]


def follow_run(job: PageJob, model: Model, prompt: str, name: str, policy: str) -> OnStep:
    """Return an `on_step` that sends the empty canvas, then every step, and ends the run when its page goes away."""

    def send_start(step: Step, spell: Spell) -> None:
        job.send("start", {"record": _empty_run(step.state, model, prompt, name, policy)})

    return _follow_steps(job, model, policy, send_start)


def follow_branch(job: PageJob, model: Model, start: State, label: str, policy: Any) -> OnStep:
    """Return an `on_step` that sends every step of a branch.

    The branch's own first step is not passed to `on_step`, so it is sent as the difference of two states.
    """

    def send_branching_step(step: Step, spell: Spell) -> None:
        number = int(step.state.step_B[0])
        if number != int(start.step_B[0]) + 1:
            return
        texts = zip(token_texts(start, spell), token_texts(step.state, spell), strict=True)
        changes = [[at, new, None] for at, (old, new) in enumerate(texts) if old != new]
        nothing = {"why": "", "signal": None, "threshold": None, "open": None}
        job.send("step", {"step": number, "changes": changes, "policy": label, **nothing})

    return _follow_steps(job, model, policy, send_branching_step)


def _follow_steps(job: PageJob, model: Model, policy: Any, send_first: SendFirst) -> OnStep:
    """Return an `on_step` that sends every step; `send_first` sends what the page needs before the first of them."""
    if _is_search(policy):
        return _count_forwards(job)
    spell, is_first = token_speller(model.codec), True

    def on_step(traj: Trajectory) -> None:
        nonlocal is_first
        job.check()
        if traj.last is None:
            return
        if is_first:
            is_first = False
            send_first(traj.last, spell)
        job.send("step", step_data(traj.last, traj.state, spell, number=int(traj.state.step_B[0])))

    return on_step


def _count_forwards(job: PageJob) -> OnStep:
    """Return an `on_step` for searches, which sends the number of forwards and no canvas."""
    return lambda traj: job.send("progress", {"forwards": int(traj.forwards_B.sum())})


def _is_search(policy: Any) -> bool:
    return isinstance(policy, Search) or (policy in METHODS and issubclass(METHODS[policy].kind, Search))


def _empty_run(state: State, model: Model, prompt: str, name: str, policy: str) -> RunData:
    """Return a run before its first step, as `run_data` would, with the texts that only fill up a canvas."""
    length = int(state.length_B[0])
    return {
        "format": FORMAT,
        "model": name,
        "policy": policy,
        "prompt": replace_surrogates(prompt),
        "text": "",
        "score": None,
        "explanation": None,
        "tokens": token_texts(state, token_speller(model.codec)),
        "fixed": (~state.answer_BL[0, :length]).tolist(),
        "filler": [False] * length,
        "fillers": _filler_texts(model),
        "steps": [],
    }


def _filler_texts(model: Model) -> list[str]:
    return sorted(map(token_speller(model.codec), end_tokens(model.codec)))
