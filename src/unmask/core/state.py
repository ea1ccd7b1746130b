"""The denoising state z_t of B rows: canvases, what is given, what is final, and where in the run they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, require
from unmask.core.rows import Shown, select


@dataclass(frozen=True, repr=False)
class State(Shown):
    """B canvases of up to L positions, padded on the right.

    A position is *fixed* (prompt or given token), or part of the *answer*: masked, revisable or committed.
    `horizon_B` is the planned number of steps T; `step_B` counts the steps taken. Tensors of a state are never written
    to: what is derived from them is kept.
    """

    tokens_BL: Tensor
    fixed_BL: Tensor
    committed_BL: Tensor
    length_B: Tensor
    step_B: Tensor
    horizon_B: Tensor
    mask_id: int

    @cached_property
    def valid_BL(self) -> Tensor:
        return torch.arange(self.tokens_BL.shape[1], device=self.tokens_BL.device) < self.length_B[:, None]

    @cached_property
    def answer_BL(self) -> Tensor:
        return self.valid_BL & ~self.fixed_BL

    @cached_property
    def masked_BL(self) -> Tensor:
        """M_t. A mask id inside the prompt is a given token, not a blank."""
        return self.answer_BL & (self.tokens_BL == self.mask_id)

    @cached_property
    def revealed_BL(self) -> Tensor:
        return self.answer_BL & (self.tokens_BL != self.mask_id)

    @cached_property
    def revisable_BL(self) -> Tensor:
        return self.revealed_BL & ~self.committed_BL

    @cached_property
    def rank_BL(self) -> Tensor:
        """Index of each position among the row's answer positions: the coordinate that blocks are cut on."""
        return self.answer_BL.long().cumsum(-1) - 1

    @property
    def remaining_B(self) -> Tensor:
        """h_t, at least 1: a run that overstays its horizon is always on its last step."""
        return (self.horizon_B - self.step_B).clamp(min=1)

    @property
    def batch(self) -> int:
        return self.tokens_BL.shape[0]

    def after(self, tokens_BL: Tensor, committed_BL: Tensor, step_B: Tensor) -> "State":
        """The same rows later; what follows from lengths and given tokens alone is not computed again."""
        later = replace(self, tokens_BL=tokens_BL, committed_BL=committed_BL, step_B=step_B)
        later.__dict__.update({name: kept for name, kept in self.__dict__.items() if name in _OF_THE_PROMPT})
        return later

    def select(self, rows_U: Tensor) -> "State":
        return select(self, rows_U)

    def pad_to(self, length: int) -> "State":
        """The same rows on a longer canvas: nothing a row decides may change."""
        extra = length - self.tokens_BL.shape[1]
        require(extra >= 0, "length", length, f">= {self.tokens_BL.shape[1]}", "padding only lengthens")
        pad = torch.nn.functional.pad
        return replace(
            self,
            tokens_BL=pad(self.tokens_BL, (0, extra), value=0),
            fixed_BL=pad(self.fixed_BL, (0, extra), value=True),
            committed_BL=pad(self.committed_BL, (0, extra), value=True),
        )

    @classmethod
    def from_prompts(
        cls,
        prompts: Sequence[Sequence[int]],
        *,
        new_tokens: int | Sequence[int],
        steps: int | Sequence[int],
        mask_id: int,
        device: torch.device | str = "cpu",
    ) -> "State":
        """Rows of prompt followed by `new_tokens` masks (the answer's horizon), to be filled in `steps` steps."""
        if not prompts:
            raise ConfigError("prompts is empty; allowed: one prompt or more; pass at least one prompt")
        counts = _per_row("new_tokens", new_tokens, len(prompts))
        for row, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
            require(len(prompt) > 0, f"prompt of row {row}", [], "one token or more", "give the model a prompt")
            require(count > 0, f"new_tokens of row {row}", count, "1 or more", "ask for at least one token")
        canvases = [[*p, *[mask_id] * n] for p, n in zip(prompts, counts, strict=True)]
        given = [[True] * len(p) + [False] * n for p, n in zip(prompts, counts, strict=True)]
        return cls.from_canvases(canvases, steps=steps, mask_id=mask_id, given=given, device=device)

    @classmethod
    def from_canvases(
        cls,
        canvases: Sequence[Sequence[int]],
        *,
        steps: int | Sequence[int],
        mask_id: int,
        given: Sequence[Sequence[bool]] | None = None,
        device: torch.device | str = "cpu",
        extra_steps: bool = False,
    ) -> "State":
        """Infilling, the general case: every mask is a blank, everything else is given (unless `given` says so).

        `extra_steps` is for policies that take more steps than the answer has positions.
        """
        if not canvases:
            raise ConfigError("canvases is empty; allowed: one canvas or more; pass at least one canvas")
        if given is None:
            given = [[t != mask_id for t in canvas] for canvas in canvases]
        shape = [len(canvas) for canvas in canvases]
        fits = [len(row) for row in given] == shape
        require(fits, "lengths of given", [len(row) for row in given], f"{shape}", "give one flag per canvas position")
        budgets = _per_row("steps", steps, len(canvases))
        for row, (canvas, flags, budget) in enumerate(zip(canvases, given, budgets, strict=True)):
            answer = [token for token, is_given in zip(canvas, flags, strict=True) if not is_given]
            has_mask = mask_id in answer
            require(has_mask, f"blanks of row {row}", 0, "1 or more", "the canvas has no mask: nothing to decode")
            require(
                1 <= budget <= len(answer) or (extra_steps and budget >= 1),
                f"steps of row {row}",
                budget,
                f"1 to {len(answer)} (the row's number of answer positions)",
                "lower steps or ask for more tokens" if budget >= 1 else "take at least one step",
            )
        length = max(len(c) for c in canvases)
        tokens = [[*c, *[0] * (length - len(c))] for c in canvases]
        fixed = [[*g, *[True] * (length - len(g))] for g in given]
        fixed_BL = torch.tensor(fixed, dtype=torch.bool, device=device)
        return cls(
            tokens_BL=torch.tensor(tokens, dtype=torch.long, device=device),
            fixed_BL=fixed_BL,
            committed_BL=fixed_BL.clone(),
            length_B=torch.tensor([len(c) for c in canvases], device=device),
            step_B=torch.zeros(len(canvases), dtype=torch.long, device=device),
            horizon_B=torch.tensor(budgets, device=device),
            mask_id=mask_id,
        )


_OF_THE_PROMPT = ("valid_BL", "answer_BL", "rank_BL")


def _per_row(name: str, value: int | Sequence[int], rows: int) -> list[int]:
    values = [value] * rows if isinstance(value, int) else list(value)
    require(len(values) == rows, f"number of {name}", len(values), f"1 or {rows}", "give one value per row")
    return values
