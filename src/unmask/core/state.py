"""The state z_t of B rows, and the action a_t that changes it: Eq. (1) of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from unmask.base.errors import ConfigError, require
from unmask.core.batch import BatchValue

RULES = ("confidence", "margin", "certainty", "stability", "dependency")
"""The J scoring rules, in the order of alpha's entries."""

_SAME_AT_EVERY_STEP = ("valid_BL", "answer_BL", "rank_BL")
"""Cached tensors of a state that depend only on its lengths and given positions."""


@dataclass(frozen=True, repr=False)
class State(BatchValue):
    """B canvases of up to L positions, padded on the right.

    A position is *fixed* (prompt or given token), or part of the *answer*: masked, revisable or committed. Nothing may
    write to the tensors of a state, because tensors that are derived from them are cached.
    """

    tokens_BL: Tensor
    fixed_BL: Tensor
    """Given positions and padding."""
    committed_BL: Tensor
    """Positions that are never masked again. Given positions are committed too."""
    length_B: Tensor
    step_B: Tensor
    """Steps taken so far."""
    horizon_B: Tensor
    """Planned number of steps, T."""
    mask_id: int

    @cached_property
    def valid_BL(self) -> Tensor:
        """Positions of the canvas that are not padding."""
        return torch.arange(self.tokens_BL.shape[1], device=self.tokens_BL.device) < self.length_B[:, None]

    @cached_property
    def answer_BL(self) -> Tensor:
        """Positions that are not given."""
        return self.valid_BL & ~self.fixed_BL

    @cached_property
    def masked_BL(self) -> Tensor:
        """Answer positions that are still to be filled, M_t. A mask token inside the prompt is a given token."""
        return self.answer_BL & (self.tokens_BL == self.mask_id)

    @cached_property
    def revealed_BL(self) -> Tensor:
        """Answer positions that hold a token."""
        return self.answer_BL & (self.tokens_BL != self.mask_id)

    @cached_property
    def revisable_BL(self) -> Tensor:
        """Revealed positions that may be masked again."""
        return self.revealed_BL & ~self.committed_BL

    @cached_property
    def rank_BL(self) -> Tensor:
        """Index of each position among the answer positions of its row. Blocks are counted in these indices."""
        return self.answer_BL.long().cumsum(-1) - 1

    @property
    def remaining_steps_B(self) -> Tensor:
        """Steps left, h_t; at least 1, so that a run beyond its horizon is always on its last step."""
        return (self.horizon_B - self.step_B).clamp(min=1)

    @property
    def batch(self) -> int:
        """Number of rows."""
        return self.tokens_BL.shape[0]

    def advance(self, tokens_BL: Tensor, committed_BL: Tensor, step_B: Tensor) -> "State":
        """Return the state after a step, with its new tokens and committed positions."""
        later = replace(self, tokens_BL=tokens_BL, committed_BL=committed_BL, step_B=step_B)
        # `cached_property` stores values in `__dict__`. Without this every step would compute them again.
        later.__dict__.update({name: self.__dict__[name] for name in _SAME_AT_EVERY_STEP if name in self.__dict__})
        return later

    def pad_to(self, length: int) -> "State":
        """Return the state with its canvases padded to a length. Padding must not change any decision about a row."""
        extra = length - self.tokens_BL.shape[1]
        require(extra >= 0, "length", length, f">= {self.tokens_BL.shape[1]}", "padding only lengthens")
        pad = torch.nn.functional.pad
        return replace(
            self,
            tokens_BL=pad(self.tokens_BL, (0, extra), value=0),
            # Padding is given and committed; otherwise a policy could reveal it, mask it again, or wait for it.
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
        """Create a start from prompts, each followed by `new_tokens` masks, to be filled in `steps` steps."""
        if not prompts:
            raise ConfigError("prompts is empty; allowed: one prompt or more; pass at least one prompt")
        counts = _list_per_row("new_tokens", new_tokens, len(prompts))
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
        """Create a start from canvases. Masks are blanks and all other tokens are given, unless `given` has the flags.

        `extra_steps` allows more steps than a row has answer positions.
        """
        if not canvases:
            raise ConfigError("canvases is empty; allowed: one canvas or more; pass at least one canvas")
        if given is None:
            given = [[t != mask_id for t in canvas] for canvas in canvases]
        lengths = [len(canvas) for canvas in canvases]
        found = [len(row) for row in given]
        require(found == lengths, "lengths of given", found, f"{lengths}", "give one flag per canvas position")
        horizons = _list_per_row("steps", steps, len(canvases))
        for row, (canvas, flags, horizon) in enumerate(zip(canvases, given, horizons, strict=True)):
            answer = [token for token, is_given in zip(canvas, flags, strict=True) if not is_given]
            has_mask = mask_id in answer
            require(has_mask, f"blanks of row {row}", 0, "1 or more", "the canvas has no mask: nothing to decode")
            require(
                1 <= horizon <= len(answer) or (extra_steps and horizon >= 1),
                f"steps of row {row}",
                horizon,
                f"1 to {len(answer)} (the row's number of answer positions)",
                "lower steps or ask for more tokens" if horizon >= 1 else "take at least one step",
            )
        wide = max(lengths)
        tokens = [[*c, *[0] * (wide - len(c))] for c in canvases]
        fixed = [[*g, *[True] * (wide - len(g))] for g in given]
        fixed_BL = torch.tensor(fixed, dtype=torch.bool, device=device)
        return cls(
            tokens_BL=torch.tensor(tokens, dtype=torch.long, device=device),
            fixed_BL=fixed_BL,
            committed_BL=fixed_BL.clone(),
            length_B=torch.tensor(lengths, device=device),
            step_B=torch.zeros(len(canvases), dtype=torch.long, device=device),
            horizon_B=torch.tensor(horizons, device=device),
            mask_id=mask_id,
        )


def _list_per_row(name: str, value: int | Sequence[int], rows: int) -> list[int]:
    values = [value] * rows if isinstance(value, int) else list(value)
    require(len(values) == rows, f"number of {name}", len(values), f"1 or {rows}", "give one value per row")
    return values


@cache
def _confidence_weights(device: torch.device) -> Tensor:
    """Return alpha with all weight on confidence. Cached: a copy to a GPU makes the host wait and breaks graphs."""
    with torch.inference_mode(False):
        return torch.tensor([float(rule == "confidence") for rule in RULES], dtype=torch.float64, device=device)


@dataclass(frozen=True, repr=False)
class Action(BatchValue):
    """Decision of one step for each row: where and how many positions to reveal, in which order, and which are final.

    It is a_t = (alpha, r, kappa, c) of Eq. (1), over the whole canvas; `apply` ignores positions without a mask.
    To reveal exactly one set of positions, make it the region and set kappa to 1 (`reveal`). To wait, set kappa to 0.
    """

    alpha_BJ: Tensor
    """Weights of the scoring rules: not negative, with sum 1."""
    region_BL: Tensor
    """Where positions may be revealed."""
    kappa_B: Tensor
    """Share of the eligible positions to reveal, in [0, 1]."""
    commit_BL: Tensor
    """Positions that become final when they are revealed in this step."""
    remask_BL: Tensor | None = None
    """Revisable positions to mask again before anything is revealed."""
    tokens_BL: Tensor | None = None
    """Tokens to reveal instead of the sampled ones; -1 to keep the sampled one."""
    notes: Mapping[str, Tensor] = field(default_factory=dict)
    """Small tensors, batch first, that the method can read at its next step (`Trajectory.notes`)."""
    rule: str | None = None
    """The scoring rule that has all the weight, if one does; `apply` then skips the other rules, with the same result.
    Not stored in steps and files."""

    @classmethod
    def top(cls, state: State, open_BL: Tensor, k_B: Tensor, *, commit: bool = True, **parts: Any) -> "Action":
        """Reveal the `k_B` most confident masked positions of the region `open_BL`, all of them where it has fewer.

        Unlike in `reveal`, the action's region is all of `open_BL` and `kappa_B` a share of it: diagnostics read both.
        `commit` makes the revealed positions final. `parts` are other fields of the action.
        """
        n_B = (open_BL & state.masked_BL).sum(-1)
        kappa_B = torch.minimum(k_B, n_B).double() / n_B.clamp(min=1).double()
        alpha_BJ = _confidence_weights(kappa_B.device).repeat(len(kappa_B), 1)
        return cls(alpha_BJ, open_BL, kappa_B, torch.full_like(open_BL, commit), **parts, rule="confidence")

    @classmethod
    def reveal(cls, chosen_BL: Tensor, *, of: Tensor, commit: bool = True, **parts: Any) -> "Action":
        """Reveal exactly the chosen positions. A row without any waits, with the positions `of` as its region.

        `commit` makes the revealed positions final. `parts` are other fields of the action.
        """
        any_B = chosen_BL.any(-1)
        region_BL = torch.where(any_B[:, None], chosen_BL, of)
        alpha_BJ = _confidence_weights(any_B.device).repeat(len(any_B), 1)
        return cls(alpha_BJ, region_BL, any_B.double(), torch.full_like(of, commit), **parts, rule="confidence")

    def join(self, others: "Sequence[Action]") -> "Action":
        joined = super().join(others)
        # One `rule` holds for all rows. If the rows disagree, `apply` must compute the mixture from all rules.
        return joined if all(other.rule == self.rule for other in others) else replace(joined, rule=None)
