"""A loaded model: `generate` or `infill` text with any method, `branch` from any step, and `log_likelihood`."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from unmask.api.likelihood import Likelihoods, log_likelihood
from unmask.api.options import OPTIONS, DecodeOptions, LikelihoodOptions, check_options, document_options
from unmask.api.request import (
    Request,
    check_length,
    check_texts,
    count_steps,
    infill_request,
    start_trajectory,
    token_request,
)
from unmask.api.resolve import ResolvedOptions, branch_options, json_values, resolve
from unmask.base.display import Displayable
from unmask.base.environment import versions
from unmask.base.errors import ConfigError, OtherModel, SchemaError, require, warn_caller
from unmask.core import (
    Action,
    AnswerCost,
    Denoiser,
    Noise,
    Policy,
    Search,
    Trajectory,
    answer_tokens,
    map_tensors,
    row_key,
    total_cost,
)
from unmask.engine import GivenAction
from unmask.models import Codec, Prompt

DECODE_AGAIN = "allowed: what generate, infill and branch write; decode it again"

REPR_CHARACTERS, REPR_ROWS = 60, 4
"""Most characters of a text, and most texts, in the `repr` of a generation."""


@dataclass(frozen=True, repr=False)
class Generation(Displayable):
    """The result of `generate`, `infill` and `branch`: one row for each sample of each prompt."""

    texts: tuple[str, ...]
    """The new text of each row; the whole text when infilling."""
    tokens: tuple[tuple[int, ...], ...]
    """The tokens of `texts`."""
    canvases: tuple[str, ...]
    """The whole text of each row: prompt and answer."""
    trajectory: Trajectory
    """The decoding steps of all rows; without steps if decoded with `record=False`."""
    config: dict[str, Any]
    """The resolved configuration, enough to repeat the run, as plain JSON values."""
    policy: Policy | Search
    """The method that decoded the rows."""
    answer_tokens: tuple[int, ...] = ()
    """Number of tokens of each row's answer, without the end of text and the filler behind it."""
    codec: Codec | None = field(default=None, compare=False)
    """The model's codec, which spells tokens when the run is displayed."""

    def __repr__(self) -> str:
        shorten = (text if len(text) <= REPR_CHARACTERS else f"{text[:REPR_CHARACTERS]}..." for text in self.texts)
        texts, hidden = [*islice(shorten, REPR_ROWS)], len(self.texts) - REPR_ROWS
        more = f" and {hidden} more" if hidden > 0 else ""
        cost = f"{self.forwards} forwards, {self.tokens_per_forward:.2f} tokens per forward"
        return f"Generation({texts!r}{more}; {self.config['model']['name']}, {self.policy.name}; {cost})"

    @property
    def text(self) -> str:
        """The text of a generation that has only one row."""
        rows = len(self.texts)
        require(rows == 1, "the number of texts", rows, "1", "use .texts, which has one for each prompt and sample")
        return self.texts[0]

    @property
    def row_forwards(self) -> tuple[int, ...]:
        """Denoiser passes of each row, look-aheads and guidance included."""
        return tuple(self.trajectory.forwards_B.tolist())

    @property
    def forwards(self) -> int:
        """Denoiser passes of all rows together."""
        return sum(self.row_forwards)

    @property
    def cost(self) -> AnswerCost:
        """Cost of all rows together: passes, tokens read, positions re-masked, answer positions."""
        return total_cost(self.trajectory)

    @property
    def tokens_per_forward(self) -> float:
        """Tokens of the answers, without filler, per denoiser pass."""
        return sum(self.answer_tokens) / self.forwards

    def to_json(self) -> str:
        """Return everything but the trajectory as JSON; the same run gives the same bytes."""
        steps = self.trajectory.state.step_B.tolist()
        columns = zip(self.texts, self.canvases, self.tokens, self.answer_tokens, steps, self.row_forwards, strict=True)
        names = ("text", "canvas", "tokens", "answer_tokens", "steps", "forwards")
        document = {
            "rows": [json_values(dict(zip(names, row, strict=True))) for row in columns],
            **self.cost._asdict(),
            "answer_tokens": sum(self.answer_tokens),
            "tokens_per_forward": self.tokens_per_forward,
            "config": self.config,
        }
        # Lists of numbers on one line. No string is touched: inside one, a line break is written as "\\n".
        spread = json.dumps(document, indent=2, ensure_ascii=False)
        return re.sub(r"\[\n[\s\d,-]*\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), spread)


@dataclass(frozen=True)
class Model:
    """A denoiser that can read and write text."""

    name: str
    denoiser: Denoiser = field(repr=False)
    codec: Codec = field(repr=False)
    options: Mapping[str, Any]
    """Options that the model was loaded with; recorded in every result."""
    max_length: int | None = None
    """Positions of the longest canvas; None for no limit."""
    default_prompt: str = ""
    """The prompt where none is given."""
    max_new_tokens: int | None = None
    """Tokens to add where no number is given; None for the rest of the canvas."""
    reference: str = "llada"
    """Name of the method that the model's authors decode with; the default policy."""

    @property
    def fingerprint(self) -> str:
        """Hash that identifies the model: of its files, or of name and options if it has no files."""
        made_from = json.dumps([self.name, json_values(self.options)], sort_keys=True)
        return str(self.options.get("fingerprint") or hashlib.sha256(made_from.encode()).hexdigest()[:16])

    @document_options
    def generate(self, prompt: Prompt | Sequence[Prompt] | None = None, **options: Any) -> Generation:
        """Continue one prompt or several; without any, the model's own default prompt.

        A prompt is a text (one user turn, for models with a chat template) or a conversation: a list of
        {"role": ..., "content": ...}. Any keyword that is no option is a setting of the policy, by the name its authors
        use: block_length, remasking (llada), alg, alg_temp (dream); `unmask methods` lists them. Without a policy,
        score, region, cardinality and commitment compose one (`unmask.compose`). `gen_length` is another name for
        `max_new_tokens`. A row's random numbers depend on seed, sample and its own first canvas, so a prompt gets the
        same answer in any batch.
        """
        # All options are checked before a prompt is read, and all prompts before the first forward.
        check_options("generate", options)
        resolved = resolve(self, DecodeOptions(**options))
        prompts = check_texts("prompt", self.default_prompt if prompt is None else prompt)
        requests = [self._make_request(one, resolved) for one in prompts]
        return self._decode("generate", prompts, requests, resolved, default_prompt=prompt is None)

    @document_options
    def infill(self, text: str | Sequence[str], **options: Any) -> Generation:
        """Fill the blanks of each text, written "[MASK]" or with the model's own mask sign; the rest is given."""
        check_options("infill", options)
        resolved = resolve(self, DecodeOptions(**options))
        texts = check_texts("text", text)
        requests = [infill_request(self, one, resolved.options.steps, resolved.steps_share) for one in texts]
        for request in requests:
            check_length(self, "text", len(request.canvas))
        return self._decode("infill", texts, requests, resolved, default_prompt=False)

    @document_options
    def log_likelihood(
        self, text: str | Sequence[str], *, prompt: Prompt | Sequence[Prompt] | None = None, **options: Any
    ) -> Likelihoods:
        """Compute the log-likelihood of each text, given one prompt for all, one for each, or none.

        estimator="exact": under `policy` (default: the model's reference) with any of its settings, `tokens_per_step`
        tokens in a step of its schedule; refused where the method draws positions, re-masks or writes tokens of its
        own. estimator="monte-carlo": LLaDA's lower bound from `samples` masked copies and a `seed`.
        estimator="oracle": the best order inside blocks of `oracle_block` tokens. Tokens are drawn at `temperature`,
        with top_p, top_k, cfg_scale and the end-of-text options of `generate`; a token that a filter cuts off makes
        -inf. `batch_size` canvases go through the model together; no row's result depends on the others.
        """
        check_options("log_likelihood", options)
        return log_likelihood(self, text, prompt, LikelihoodOptions(**options))

    @document_options
    def branch(
        self,
        generation: Generation | Trajectory | str | Path,
        *,
        step: int,
        row: int = 0,
        action: Action | Policy | None = None,
        **options: Any,
    ) -> Generation:
        """Decode one row of an earlier run again from a chosen step, with another action, policy or seed.

        `generation` is what `generate`, `infill` or `branch` returned, its trajectory, or the file of one (`--save`,
        `Trajectory.save`); a run of another model is refused. An option that is not given is inherited: policy and
        settings, temperature and the others, and the row's random numbers, so a branch without options repeats the
        run. A branch of a branch does so from beyond the step where that one began: an action taken there is not taken
        again. `action` is taken at that step: an `Action` for one row, or a policy that decides this step alone; the
        policy goes on after it. `seed` draws other random numbers.
        """
        # None means "inherit", as in the signature; settings of a policy may be None.
        given = {name: value for name, value in options.items() if value is not None or name not in OPTIONS}
        known = isinstance(generation, Generation | Trajectory | str | Path)
        require(known, "generation", generation, "a Generation, a Trajectory or its file", "pass one")
        own = None
        if isinstance(generation, Generation):
            traj, own = generation.trajectory, generation.policy
        else:
            traj = generation if isinstance(generation, Trajectory) else Trajectory.load(generation)
        before = self._check_origin(traj)
        decode_settings, gate_entry = branch_options(traj, given, own)
        resolved = resolve(self, decode_settings)
        device, vocabulary = self.denoiser.device, self.denoiser.vocabulary
        start = traj.resume(row, step)
        most = max(vocabulary.size - 1, vocabulary.mask_id)
        # Tokens beyond the vocabulary would end a GPU process; the file may come from anywhere.
        for state in (start.state, *(earlier.state for earlier in start.steps)):
            if state.mask_id != vocabulary.mask_id or int(state.tokens_BL.max()) > most:
                raise SchemaError(f"the run holds tokens that the model has not; {DECODE_AGAIN}")
        start = map_tensors(start, lambda tensor: tensor.to(device))
        line = (start.config or {})["rows"][0]
        key = int(start.noise.key_B[0])
        if "seed" in given:
            # As `Request.key` makes it: other numbers, and still a function of the row's own first canvas.
            first = start.steps[0].state if start.steps else start.state
            canvas = first.tokens_BL[0, : int(first.length_B[0])].tolist()
            key = row_key(given["seed"], np.array(canvas, "<i8").tobytes(), line["sample"])
        start = replace(start, noise=Noise.of([key], device))
        if action is not None:
            if isinstance(action, Action):
                action = GivenAction(map_tensors(action, lambda tensor: tensor.to(device)))
            require(isinstance(action, Policy), "action", action, "an Action or a policy object", "e.g. action=LLaDA()")
            start = resolved.take_first_step(start, action)
        end = resolved.decode(start)
        config = {
            **resolved.config,
            **gate_entry,
            "default_prompt": before["default_prompt"],
            "rows": [{**line, "key": key}],
            "branch": {
                "row": row,
                "step": step,
                "action": None if action is None else end.steps[step].policy,
                "from": {name: before[name] for name in ("policy", "proposal", "seed", "branch") if name in before},
            },
        }
        answer = end.state.answer_BL[0].nonzero().flatten().tolist()
        return self._make_generation(str(before["task"]), end, [(answer[0], answer[-1] + 1)], config, resolved)

    def _make_request(self, prompt: Prompt, resolved: ResolvedOptions) -> Request:
        """Make the request of a prompt; without `max_new_tokens`, use the model's default or all its room."""
        tokens, count = self.codec.encode(prompt), resolved.options.max_new_tokens
        taken = len(tokens) + len(self.codec.closing)
        allowed = "1 or more"
        if self.max_length is None:
            count = self.max_new_tokens if count is None else count
            if count is None:
                raise ConfigError(f"max_new_tokens is None; allowed: 1 or more with {self.name}; say how many")
            room = count
        else:
            room = self.max_length - taken
            if count is None:
                count = room if self.max_new_tokens is None else min(self.max_new_tokens, max(room, 1))
            allowed = f"1 to {room} ({taken} of {self.max_length} positions are the prompt)"
        check_length(self, "prompt", taken + 1)
        require(1 <= count <= room, "max_new_tokens", count, allowed, "change it, or shorten the prompt")
        steps = resolved.options.steps
        return token_request(self, tokens, count, count_steps(resolved.steps_share, count) if steps is None else steps)

    def _decode(
        self,
        task: str,
        prompts: Sequence[Prompt],
        requests: Sequence[Request],
        resolved: ResolvedOptions,
        default_prompt: bool,
    ) -> Generation:
        """Decode requests, and record the prompt, key and steps of every row in the configuration."""
        # Samples of a prompt lie side by side and differ in the stream of their row key.
        samples = range(resolved.options.samples)
        runs = [(*pair, sample) for pair in zip(prompts, requests, strict=True) for sample in samples]
        start = start_trajectory(
            self.denoiser,
            [request for _, request, _ in runs],
            resolved.options.seed,
            streams=[sample for *_, sample in runs],
            extra_steps=resolved.policy.extra_steps,
        )
        end = resolved.decode(start)
        rows = [
            {
                "prompt": json_values(prompt),
                "sample": sample,
                "key": key,
                "new_tokens": request.blanks,
                "steps": request.steps,
            }
            for (prompt, request, sample), key in zip(runs, start.noise.key_B.tolist(), strict=True)
        ]
        config = resolved.config
        if (gate := resolved.gate) is not None:
            # A gate was calibrated with a share of steps; with another share its thresholds may not hold.
            planned = [count_steps(resolved.steps_share, request.blanks) for request in requests]
            texts = [gate.steps_warning(r.steps, steps, r.blanks) for r, steps in zip(requests, planned, strict=True)]
            warnings = [text for text in dict.fromkeys(texts) if text]
            for text in warnings:
                warn_caller(text)
            config |= {"warnings": warnings} if warnings else {}
        config |= {"default_prompt": default_prompt, "rows": rows}
        return self._make_generation(task, end, [request.answer for _, request, _ in runs], config, resolved)

    def _make_generation(
        self,
        task: str,
        end: Trajectory,
        answers: Sequence[tuple[int, int]],
        config: dict[str, Any],
        resolved: ResolvedOptions,
    ) -> Generation:
        """Make the `Generation` of a finished run: texts, tokens, costs and configuration."""
        lengths = end.state.length_B.tolist()
        canvases = [tuple(row[:n]) for row, n in zip(end.state.tokens_BL.tolist(), lengths, strict=True)]
        spans = [(0, n) for n in lengths] if task == "infill" else answers
        tokens = [canvas[slice(*span)] for canvas, span in zip(canvases, spans, strict=True)]
        # An answer ends where the model ended it, an infilled text does not.
        spell = self.codec.answer if task == "generate" else self.codec.text
        ends = self.denoiser.vocabulary.eos_ids
        config = {"task": task, **config, "versions": versions()}
        return Generation(
            texts=tuple(map(spell, tokens)),
            tokens=tuple(tokens),
            canvases=tuple(map(self.codec.decode, canvases)),
            trajectory=replace(end, config=config),
            config=config,
            policy=resolved.policy,
            answer_tokens=tuple(answer_tokens(end.state, ends, cut=task == "generate").tolist()),
            codec=self.codec,
        )

    def _check_origin(self, traj: Trajectory) -> Mapping[str, Any]:
        """Return the configuration of a run; refuse a run of another model, and a malformed configuration."""
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
        lines = whole and all(isinstance(row, Mapping) and type(row.get("sample")) is int for row in rows or ())
        task_known = config.get("task") in ("generate", "infill")
        if not (task_known and lines and isinstance(config.get("default_prompt"), bool)):
            raise SchemaError(f"the run's configuration makes no sense; {DECODE_AGAIN}")
        return config
