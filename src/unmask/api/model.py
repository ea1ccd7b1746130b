"""A loaded model: `generate` or `infill` text with any unmasking method, and `branch` from any step of it."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask.adapt import Gate
from unmask.api.likelihood import Likelihoods, log_likelihood
from unmask.api.options import DecodeOptions, said
from unmask.api.request import (
    Request,
    check_length,
    entered,
    entered_texts,
    infill_request,
    is_conversation,
    steps_of,
    token_request,
)
from unmask.api.resolve import ResolvedOptions, branch_options, plain, resolve
from unmask.base.display import Displayable
from unmask.base.environment import versions
from unmask.base.errors import ConfigError, OtherModel, SchemaError, require
from unmask.base.options import fits
from unmask.core import (
    Action,
    AnswerCost,
    Denoiser,
    Noise,
    Policy,
    Search,
    State,
    Trajectory,
    answer_tokens,
    map_tensors,
    row_key,
    total_cost,
)
from unmask.engine import GivenAction
from unmask.models import Codec, Prompt


@dataclass(frozen=True, repr=False)
class Generation(Displayable):
    """What `generate`, `infill` and `branch` return: a row per prompt and sample, the samples of one side by side."""

    texts: tuple[str, ...]
    """The new text of each row; the whole text when infilling."""
    tokens: tuple[tuple[int, ...], ...]
    """The tokens of `texts`."""
    canvases: tuple[str, ...]
    """Prompt and answer of each row."""
    trajectory: Trajectory
    """How every row got there; without steps under `record=False`."""
    config: dict[str, Any]
    """The resolved configuration: enough to repeat the run. Plain JSON values."""
    policy: Policy | Search
    """Who decided."""
    answer_tokens: tuple[int, ...] = ()
    """Tokens of each row's answer: without end of text and what stands behind it, which only fill the canvas up."""
    codec: Codec | None = field(default=None, compare=False)
    """Spells tokens where it is shown."""

    def __repr__(self) -> str:
        shown = [text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..." for text in self.texts[:_FEW]]
        more = f" and {len(self.texts) - _FEW} more" if len(self.texts) > _FEW else ""
        cost = f"{self.forwards} forwards, {self.tokens_per_forward:.2f} tokens per forward"
        return f"Generation({shown!r}{more}; {self.config['model']['name']}, {self.policy.name}; {cost})"

    @property
    def text(self) -> str:
        """The text of the only row."""
        rows = len(self.texts)
        require(rows == 1, "the number of texts", rows, "1", "use .texts, which has one for each prompt and sample")
        return self.texts[0]

    @property
    def row_forwards(self) -> tuple[int, ...]:
        """Denoiser passes spent on each row, looks ahead and guidance included."""
        return tuple(self.trajectory.forwards_B.tolist())

    @property
    def forwards(self) -> int:
        """Passes of all rows together."""
        return sum(self.row_forwards)

    @property
    def cost(self) -> AnswerCost:
        """All that was counted, of all rows together."""
        return total_cost(self.trajectory)

    @property
    def processed(self) -> int:
        """Tokens that the denoiser read in those passes."""
        return int(self.trajectory.processed_B.sum())

    @property
    def tokens_per_forward(self) -> float:
        """Tokens of the answers, not of what fills the canvases up."""
        return sum(self.answer_tokens) / self.forwards

    def to_json(self) -> str:
        """Everything but the trajectory; the same run gives the same bytes."""
        steps = self.trajectory.state.step_B.tolist()
        columns = zip(self.texts, self.canvases, self.tokens, self.answer_tokens, steps, self.row_forwards, strict=True)
        names = ("text", "canvas", "tokens", "answer_tokens", "steps", "forwards")
        document = {
            "rows": [plain(dict(zip(names, row, strict=True))) for row in columns],
            **self.cost._asdict(),
            "answer_tokens": sum(self.answer_tokens),
            "tokens_per_forward": self.tokens_per_forward,
            "config": self.config,
        }
        # Lists of numbers on one line. No string is touched: inside one, a line break is written as "\\n".
        spread = json.dumps(document, indent=2, ensure_ascii=False)
        return re.sub(r"\[\n[\s\d,-]*\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), spread)


_WRITTEN = "allowed: what generate, infill and branch write; decode it again"

_SHOWN, _FEW = 60, 4
"""Characters and rows of a generation that its `repr` shows."""


@dataclass(frozen=True)
class Model:
    """A denoiser that can read and write text."""

    name: str
    denoiser: Denoiser = field(repr=False)
    codec: Codec = field(repr=False)
    options: Mapping[str, Any]
    max_length: int | None = None
    """Positions of the longest canvas; None for no limit."""
    default_prompt: str = ""
    """Stands in for a prompt nobody gave."""
    max_new_tokens: int | None = None
    """New tokens when nobody says how many; None for the rest of the canvas."""
    reference: str = "llada"
    """The method its authors decode with: the policy when nobody names one."""

    @property
    def fingerprint(self) -> str:
        """Which model this is: a hash of a checkpoint's files, or of what else it was made from."""
        of_files = self.options.get("fingerprint")
        made_from = json.dumps([self.name, plain(self.options)], sort_keys=True)
        return str(of_files or hashlib.sha256(made_from.encode()).hexdigest()[:16])

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt] | None = None,
        *,
        policy: str | Policy | Search | None = None,
        preset: str | None = None,
        max_new_tokens: int | None = None,
        gen_length: int | None = None,
        steps: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        sampler: str = "inverse",
        cfg_scale: float = 0.0,
        seed: int = 0,
        samples: int = 1,
        eos_fill: bool = False,
        logits_eos_inf: bool = False,
        confidence_eos_eot_inf: bool = False,
        eos_penalty: float = 0.0,
        cache: str | None = None,
        cache_refresh: int = 0,
        gate: Gate | str | Path | None = None,
        force_gate: bool = False,
        planner: "Denoiser | Model | None" = None,
        record: bool = True,
        record_top: int = 0,
        on_step: Callable[[Trajectory], None] | None = None,
        **settings: Any,
    ) -> Generation:
        """Answer each prompt with `max_new_tokens` tokens (default: the model's `horizon`) in `steps` steps.

        A prompt is a text (one user turn, for models with a chat template) or a conversation: a list of
        {"role": ..., "content": ...}. Half as many steps as new tokens, rounded up, is the default, or a gate's own
        share. `gen_length` is another name for `max_new_tokens`.

        policy: a name or an object; None is the model's reference. preset: its published settings for a task. cache:
        "prefix" or "dual", approximate. gate: a calibrated gate or its file, for policy="selective"; force_gate:
        though it is another model's. planner: a second network for p2(planner=True). record_top: most probable tokens
        that a recorded step keeps of each position, 0 for what the policy reads. Any other keyword is a setting of the
        policy, by the name its authors use: block_length, remasking (llada), alg, alg_temp (dream); `unmask methods`
        lists them. Without a policy, score, region, cardinality and commitment compose one (`unmask.compose`). A row's
        random numbers depend on seed, sample and its own first canvas, so a prompt gets the same answer in any batch.
        """
        resolved = resolve(self, DecodeOptions.of("generate", said("generate", locals())))
        given: Any = self.default_prompt if prompt is None else prompt
        prompts = [entered(given)] if is_conversation(given) else entered_texts("prompt", given)
        requests = [self._generation(one, resolved) for one in prompts]
        return self._run("generate", prompts, requests, resolved, default_prompt=prompt is None)

    def infill(
        self,
        text: str | Sequence[str],
        *,
        policy: str | Policy | Search | None = None,
        preset: str | None = None,
        steps: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        sampler: str = "inverse",
        cfg_scale: float = 0.0,
        seed: int = 0,
        samples: int = 1,
        eos_fill: bool = False,
        logits_eos_inf: bool = False,
        confidence_eos_eot_inf: bool = False,
        eos_penalty: float = 0.0,
        cache: str | None = None,
        cache_refresh: int = 0,
        gate: Gate | str | Path | None = None,
        force_gate: bool = False,
        planner: "Denoiser | Model | None" = None,
        record: bool = True,
        record_top: int = 0,
        on_step: Callable[[Trajectory], None] | None = None,
        **settings: Any,
    ) -> Generation:
        """Fill the blanks of each text, written "[MASK]" or with the model's own mask sign; the rest is given.

        The default for `steps` is half as many as there are blanks, rounded up, or a gate's own share. Further options
        as for `generate`.
        """
        resolved = resolve(self, DecodeOptions.of("infill", said("infill", locals())))
        texts = entered_texts("text", text)
        requests = [infill_request(self, one, resolved.options.steps, resolved.share) for one in texts]
        return self._run("infill", texts, requests, resolved, default_prompt=False)

    def log_likelihood(
        self, text: str | Sequence[str], *, prompt: Prompt | Sequence[Prompt] | None = None, **options: Any
    ) -> Likelihoods:
        """How probable each text is after its prompt: exactly, under a method (`policy=`), or bounded (`estimator=`).

        The options, and which quantity it is, are those of `unmask.api.likelihood.score_texts`.
        """
        return log_likelihood(self, text, prompt, **options)

    def branch(
        self,
        generation: Generation | Trajectory | str | Path,
        *,
        step: int,
        row: int = 0,
        action: Action | Policy | None = None,
        policy: str | Policy | Search | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        sampler: str | None = None,
        cfg_scale: float | None = None,
        seed: int | None = None,
        eos_fill: bool | None = None,
        logits_eos_inf: bool | None = None,
        confidence_eos_eot_inf: bool | None = None,
        eos_penalty: float | None = None,
        gate: Gate | str | Path | None = None,
        force_gate: bool | None = None,
        planner: "Denoiser | Model | None" = None,
        record: bool | None = None,
        record_top: int | None = None,
        on_step: Callable[[Trajectory], None] | None = None,
        **settings: Any,
    ) -> Generation:
        """One row of a run again from its state before `step`, decoded differently.

        `generation` is what `generate`, `infill` or `branch` returned, its trajectory, or the file of one (`--save`,
        `Trajectory.save`); a run of another model is refused. What is not said is inherited: policy and settings,
        temperature and the other options, and the row's random numbers, so that a branch of which nothing is said
        repeats the run. A branch of a branch does so from beyond the step where that one began: an action taken there
        is not taken again. `action` is taken at that step: an `Action` for one row, or a policy that decides this step
        alone; the policy goes on after it. `seed` draws other random numbers.
        """
        traj = _trajectory(generation)
        self._check_origin(traj)
        own = generation.policy if isinstance(generation, Generation) else None
        options, gated = branch_options(traj, said("branch", locals()), own)
        resolved = resolve(self, options)
        start = traj.resume(row, step)
        self._check_tokens(start)
        start = map_tensors(start, lambda tensor: tensor.to(self.denoiser.device))
        key = self._key(start, seed)
        start = replace(start, noise=Noise.of([key], self.denoiser.device))
        if action is not None:
            start = resolved.first(start, _one_step_policy(action, self.denoiser.device))
        end = resolved.decode(start)
        before = traj.config or {}
        left = {name: before[name] for name in ("policy", "proposal", "seed", "branch") if name in before}
        taken = None if action is None else end.steps[step].policy
        lines = [{**(start.config or {})["rows"][0], "key": key}]
        config = {**resolved.config, **gated, "default_prompt": before["default_prompt"], "rows": lines}
        config |= {"branch": {"row": row, "step": step, "action": taken, "from": left}}
        return self._result(str(before["task"]), end, [_answer(end.state)], config, resolved)

    def _check_origin(self, traj: Trajectory) -> None:
        """Refuse the run of another model, and one that does not say whose it is."""
        config = traj.config or {}
        theirs = config.get("fingerprint")
        if theirs is None:
            raise ConfigError(
                "the trajectory does not say which model made it; allowed: one of generate, infill or branch; "
                "use unmask.decode to go on with a run of your own"
            )
        if theirs != self.fingerprint:
            named = config["model"].get("name") if isinstance(config.get("model"), Mapping) else None
            raise OtherModel(
                f"the run was decoded with {named} ({theirs}), this is {self.name} ({self.fingerprint}); allowed: a "
                "run of the same model; load that one"
            )
        rows = config.get("rows")
        whole = isinstance(rows, list) and len(rows) == traj.state.batch
        lines = whole and all(isinstance(row, Mapping) and fits(row.get("sample"), int) for row in rows or ())
        if (
            config.get("task") not in ("generate", "infill")
            or not lines
            or not fits(config.get("default_prompt"), bool)
        ):
            raise SchemaError(f"the run's configuration makes no sense; {_WRITTEN}")

    def _check_tokens(self, start: Trajectory) -> None:
        """Refuse canvases that this model could not have made."""
        vocabulary = self.denoiser.vocabulary
        for state in (start.state, *(step.state for step in start.steps)):
            most = max(vocabulary.size - 1, vocabulary.mask_id)
            if state.mask_id != vocabulary.mask_id or int(state.tokens_BL.max()) > most:
                raise SchemaError(f"the run holds tokens that the model has not; {_WRITTEN}")

    def _key(self, start: Trajectory, seed: int | None) -> int:
        """The row's random numbers: its own, or those of another seed."""
        if seed is None:
            return int(start.noise.key_B[0])
        first = start.steps[0].state if start.steps else start.state
        canvas = first.tokens_BL[0, : int(first.length_B[0])].tolist()
        return row_key(seed, np.array(canvas, "<i8").tobytes(), (start.config or {})["rows"][0]["sample"])

    def _generation(self, prompt: Prompt, resolved: ResolvedOptions) -> Request:
        tokens = self.codec.encode(prompt)
        count = self._new_tokens(len(tokens) + len(self.codec.closing), resolved.options.max_new_tokens)
        steps = resolved.options.steps
        return token_request(self, tokens, count, steps_of(resolved.share, count) if steps is None else steps)

    def _new_tokens(self, taken: int, wanted: int | None) -> int:
        """How many tokens to add to a canvas of which so many positions are taken."""
        if wanted is None and self.max_new_tokens is not None:
            wanted = (
                self.max_new_tokens
                if self.max_length is None
                else min(self.max_new_tokens, max(self.max_length - taken, 1))
            )
        if wanted is None and self.max_length is None:
            raise ConfigError(f"max_new_tokens is None; allowed: 1 or more with {self.name}; say how many")
        check_length(self, "prompt", taken + 1)
        room = None if self.max_length is None else self.max_length - taken
        if wanted is None:
            assert room is not None
            return room
        allowed = (
            "1 or more" if room is None else f"1 to {room} ({taken} of {self.max_length} positions are the prompt)"
        )
        fits = wanted >= 1 and (room is None or wanted <= room)
        require(fits, "max_new_tokens", wanted, allowed, "change it, or shorten the prompt")
        return wanted

    def _run(
        self,
        task: str,
        prompts: Sequence[Prompt],
        requests: Sequence[Request],
        resolved: ResolvedOptions,
        default_prompt: bool,
    ) -> Generation:
        """Decode, and say of every row what was asked and what came out."""
        start = resolved.start(requests)
        end = resolved.decode(start)
        samples = range(resolved.options.samples)
        asked = [(*pair, sample) for pair in zip(prompts, requests, strict=True) for sample in samples]
        rows = [
            {
                "prompt": plain(prompt),
                "sample": sample,
                "key": key,
                "new_tokens": request.blanks,
                "steps": request.steps,
            }
            for (prompt, request, sample), key in zip(asked, start.noise.key_B.tolist(), strict=True)
        ]
        remarks = resolved.remarks([request for _, request, _ in asked])
        config = {**resolved.config, **remarks, "default_prompt": default_prompt, "rows": rows}
        return self._result(task, end, [request.answer for _, request, _ in asked], config, resolved)

    def _result(
        self,
        task: str,
        end: Trajectory,
        spans: Sequence[tuple[int, int]],
        config: dict[str, Any],
        resolved: ResolvedOptions,
    ) -> Generation:
        """The rows as texts; the trajectory says what made it."""
        lengths = end.state.length_B.tolist()
        canvases = [tuple(row[:n]) for row, n in zip(end.state.tokens_BL.tolist(), lengths, strict=True)]
        whole = [(0, n) for n in lengths] if task == "infill" else spans
        answers = [canvas[slice(*span)] for canvas, span in zip(canvases, whole, strict=True)]
        # An answer ends where the model ended it, an infilled text does not.
        spell = self.codec.answer if task == "generate" else self.codec.text
        config = {"task": task, **config, "versions": versions()}
        return Generation(
            texts=tuple(map(spell, answers)),
            tokens=tuple(answers),
            canvases=tuple(map(self.codec.decode, canvases)),
            trajectory=replace(end, config=config),
            config=config,
            policy=resolved.policy,
            answer_tokens=tuple(
                answer_tokens(end.state, self.denoiser.vocabulary.eos_ids, cut=task == "generate").tolist()
            ),
            codec=self.codec,
        )


def _trajectory(run: Any) -> Trajectory:
    """Of a generation, of a file, or the thing itself."""
    if isinstance(run, Generation):
        return run.trajectory
    if isinstance(run, str | Path):
        return Trajectory.load(run)
    require(isinstance(run, Trajectory), "generation", run, "a Generation, a Trajectory or its file", "pass one")
    traj: Trajectory = run
    return traj


def _one_step_policy(action: Any, device: torch.device) -> Policy:
    """Who takes the first step of a branch."""
    if isinstance(action, Action):
        return GivenAction(map_tensors(action, lambda tensor: tensor.to(device)))
    require(isinstance(action, Policy), "action", action, "an Action or a policy object", "e.g. action=LLaDA()")
    chosen: Policy = action
    return chosen


def _answer(state: State) -> tuple[int, int]:
    """Where the answer of the only row begins and ends."""
    places = state.answer_BL[0].nonzero().flatten().tolist()
    return places[0], places[-1] + 1
