"""A loaded model: `generate` or `infill` text with any unmasking method."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.core import Denoiser, Trajectory
from unmask.decode_options import DecodeOptions, with_options
from unmask.denoisers import Codec, Prompt
from unmask.errors import ConfigError, require
from unmask.request import Request, after_tokens, check_length, infilling, steps_of
from unmask.resolve import Resolved, plain, resolve
from unmask.threads import count
from unmask.versions import versions


@dataclass(frozen=True)
class Generation:
    """What `generate` and `infill` return: one row per prompt and sample, the samples of a prompt side by side."""

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
    def processed(self) -> int:
        """Tokens that the denoiser read in those passes."""
        return int(self.trajectory.processed_B.sum())

    @property
    def tokens_per_forward(self) -> float:
        return int(self.trajectory.state.answer_BL.sum()) / self.forwards

    def to_json(self) -> str:
        """Everything but the trajectory; the same run gives the same bytes."""
        steps = self.trajectory.state.step_B.tolist()
        columns = zip(self.texts, self.canvases, self.tokens, steps, self.row_forwards, strict=True)
        names = ("text", "canvas", "tokens", "steps", "forwards")
        document = {
            "rows": [plain(dict(zip(names, row, strict=True))) for row in columns],
            "forwards": self.forwards,
            "processed_tokens": self.processed,
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
    length: int | None = None
    """Positions of the longest canvas; None for no limit."""
    opening: str = ""
    """Stands in for a prompt nobody gave."""
    horizon: int | None = None
    """New tokens when nobody says how many; None for the rest of the canvas."""
    reference: str = "llada"
    """The method its authors decode with: the policy when nobody names one."""

    @property
    def fingerprint(self) -> str:
        """Which model this is: a hash of a checkpoint's files, or of what else it was made from."""
        of_files = self.options.get("fingerprint")
        made_from = json.dumps([self.name, plain(self.options)], sort_keys=True)
        return str(of_files or hashlib.sha256(made_from.encode()).hexdigest()[:16])

    def default_prompt(self) -> str:
        """The prompt used when none is given."""
        return self.opening

    @with_options
    def generate(self, prompt: Prompt | Sequence[Prompt] | None = None, **options: Any) -> Generation:
        """Answer each prompt with `max_new_tokens` tokens (default: the model's `horizon`) in `steps` steps.

        A prompt is a text (one user turn, for models with a chat template) or a conversation: a list of
        {"role": ..., "content": ...}. Half as many steps as new tokens, rounded up, is the default, or a gate's own
        share. `gen_length` is another name for `max_new_tokens`.

        Further options, with their defaults: policy=None (the model's reference; a name or an object), seed=0,
        samples=1, temperature=0, top_p=1, top_k=0, sampler="inverse", logits_eos_inf=False,
        confidence_eos_eot_inf=False, eos_penalty=0, cfg_scale=0, eos_fill=False, cache=None ("prefix" or "dual":
        approximate), cache_refresh=0, record=True, on_step=None, gate=None (a calibrated gate or its file, for
        policy="selective"), force_gate=False (True: though it is another model's). Any other keyword is a setting of
        the policy, by the name its authors use: block_length, remasking (llada), alg, alg_temp (dream); `unmask
        methods` lists them. A row's random numbers depend on seed, sample and its own first canvas, so a prompt gets
        the same answer in any batch.
        """
        resolved = resolve(self, DecodeOptions.of("generate", options))
        given: Any = self.default_prompt() if prompt is None else prompt
        prompts = [given] if _is_conversation(given) else _texts("prompt", given)
        requests = [self._generation(one, resolved) for one in prompts]
        return self._run("generate", prompts, requests, resolved, default_prompt=prompt is None)

    @with_options
    def infill(self, text: str | Sequence[str], **options: Any) -> Generation:
        """Fill the blanks of each text, written "[MASK]" or with the model's own mask sign; the rest is given.

        The default for `steps` is half as many as there are blanks, rounded up, or a gate's own share. Further options
        as for `generate`.
        """
        resolved = resolve(self, DecodeOptions.of("infill", options))
        texts = _texts("text", text)
        requests = [infilling(self, one, resolved.options.steps, resolved.share) for one in texts]
        return self._run("infill", texts, requests, resolved, default_prompt=False)

    def _generation(self, prompt: Prompt, resolved: Resolved) -> Request:
        tokens = self.codec.encode(prompt)
        count = self._new_tokens(len(tokens) + len(self.codec.closing), resolved.options.max_new_tokens)
        steps = resolved.options.steps
        return after_tokens(self, tokens, count, steps_of(resolved.share, count) if steps is None else steps)

    def _new_tokens(self, taken: int, wanted: int | None) -> int:
        """How many tokens to add to a canvas of which so many positions are taken."""
        if wanted is None and self.horizon is not None:
            wanted = self.horizon if self.length is None else min(self.horizon, max(self.length - taken, 1))
        if wanted is None and self.length is None:
            raise ConfigError(f"max_new_tokens is None; allowed: 1 or more with {self.name}; say how many")
        check_length(self, "prompt", taken + 1)
        room = None if self.length is None else self.length - taken
        if wanted is None:
            assert room is not None
            return room
        allowed = "1 or more" if room is None else f"1 to {room} ({taken} of {self.length} positions are the prompt)"
        fits = wanted >= 1 and (room is None or wanted <= room)
        require(fits, "max_new_tokens", wanted, allowed, "change it, or shorten the prompt")
        return wanted

    def _run(
        self,
        task: str,
        prompts: Sequence[Prompt],
        requests: Sequence[Request],
        resolved: Resolved,
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
        canvases = [
            tuple(tokens[: len(request.canvas)])
            for tokens, (_, request, _) in zip(end.state.tokens_BL.tolist(), asked, strict=True)
        ]
        answers = [canvas[slice(*request.answer)] for canvas, (_, request, _) in zip(canvases, asked, strict=True)]
        # An answer ends where the model ended it, an infilled text does not.
        spell = self.codec.answer if task == "generate" else self.codec.text
        return Generation(
            texts=tuple(map(spell, answers)),
            tokens=tuple(answers),
            canvases=tuple(map(self.codec.decode, canvases)),
            trajectory=end,
            config={"task": task, **resolved.config}
            | {"default_prompt": default_prompt, "rows": rows, "versions": versions(), "threads": count()},
        )


def _texts(name: str, given: Any) -> list[Any]:
    """One text or several as a list; a prompt may be a conversation."""
    require(isinstance(given, Sequence), name, given, "a text, or a list of texts", f"pass the {name} as a string")
    texts = [given] if isinstance(given, str) else list(given)
    require(bool(texts), name, texts, "one text or more", f"pass a {name}")
    for text in texts:
        ok = isinstance(text, str) or (name == "prompt" and _is_conversation(text))
        allowed = "a text, or a list of texts" + (" or conversations" if name == "prompt" else "")
        require(ok, name, text, allowed, f"pass the {name} as a string")
        require(len(text) > 0, name, text, "one character or more", f"write a {name}")
    return texts


def _is_conversation(value: object) -> bool:
    """A list of messages, as opposed to a list of prompts."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(turn, Mapping) for turn in value)
