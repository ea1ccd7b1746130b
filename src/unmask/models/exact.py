"""`exact`: a denoiser whose posteriors are the true conditionals of an enumerable joint distribution.

Slot s of a view stands for variable `position[s]`. Its posterior is P(X_i | the visible tokens it may attend to),
never counting a token of variable i itself: so a revealed position still gets an informative prediction, and a
shadow slot that may not read its original predicts it from the rest. Canvases shorter than the joint use the
marginal of their variables.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from unmask.base.errors import DenoiserError
from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary
from unmask.models.joint import JointDistribution

_MEMO_LIMIT = 100_000


@dataclass(frozen=True)
class ExactDenoiser:
    """Wraps a joint. Each distinct row is computed alone and remembered, so batches cannot change a bit."""

    joint: JointDistribution
    eos_ids: tuple[int, ...] = ()
    _memo: dict[object, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def mask_id(self) -> int:
        """One past the joint's tokens: a mask is not something the distribution can say."""
        return self.joint.vocab

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.joint.vocab, self.mask_id, self.eos_ids)

    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self._check(inputs)
        tokens, positions = inputs.tokens_BN.tolist(), inputs.position_BN.tolist()
        valid, wanted = inputs.valid_BN.tolist(), inputs.wanted_BN.tolist()
        attend = None if inputs.attend_BNN is None else inputs.attend_BNN.tolist()
        packed: list[np.ndarray] = []
        for b, row_tokens in enumerate(tokens):
            visible = [
                (p, t, s)
                for s, (p, t, v) in enumerate(zip(positions[b], row_tokens, valid[b], strict=True))
                if v and t != self.mask_id
            ]
            everything = {p: t for p, t, _ in visible}
            for slot, want in enumerate(wanted[b]):
                if want:
                    seen = everything
                    if attend is not None:
                        seen = {p: t for p, t, s in visible if attend[b][slot][s]}
                    packed.append(self._log_marginals(seen)[positions[b][slot]])
        device = inputs.tokens_BN.device
        rows = np.stack(packed) if packed else np.zeros((0, self.joint.vocab))
        return ModelOutput(
            torch.from_numpy(rows).to(device),
            inputs.wanted_BN,
            attention_BNN=self._attention(inputs).to(device) if needs.attention else None,
            hidden_RH=torch.from_numpy(rows).to(device) if needs.hidden else None,
        )

    def _log_marginals(self, seen: dict[int, int]) -> np.ndarray:
        return self._recall(tuple(sorted(seen.items())), lambda: np.log(self.joint.marginals(seen)))

    def _attention(self, inputs: ModelInput) -> Tensor:
        """Row-normalised pairwise conditional mutual information between the variables of a view's slots."""
        batch, slots = inputs.tokens_BN.shape
        out_BNN = torch.zeros(batch, slots, slots, dtype=torch.float64)
        for b in range(batch):
            valid_S = inputs.valid_BN[b].nonzero().flatten().cpu()
            pos_S = inputs.position_BN[b].cpu()[valid_S]
            tok_S = inputs.tokens_BN[b].cpu()[valid_S]
            seen = {int(p): int(t) for p, t in zip(pos_S, tok_S, strict=True) if int(t) != self.mask_id}
            coupling = torch.from_numpy(self._coupling(int(pos_S.max()) + 1, seen))
            read_SS = coupling[pos_S][:, pos_S]
            out_BNN[b, valid_S[:, None], valid_S] = read_SS / read_SS.sum(-1, keepdim=True).clamp(min=1e-300)
        return out_BNN

    def _coupling(self, length: int, seen: dict[int, int]) -> np.ndarray:
        key = ("coupling", length, tuple(sorted(seen.items())))
        return self._recall(key, lambda: self.joint.prefix(length).coupling(seen))

    def _recall(self, key: object, compute: Callable[[], np.ndarray]) -> np.ndarray:
        if key not in self._memo:
            if len(self._memo) >= _MEMO_LIMIT:
                self._memo.clear()
            self._memo[key] = compute()
        return self._memo[key]

    def _check(self, inputs: ModelInput) -> None:
        last = int(torch.where(inputs.valid_BN, inputs.position_BN, 0).max())
        if last >= self.joint.n:
            raise DenoiserError(
                f"a canvas reaches position {last}; allowed: 0 to {self.joint.n - 1}, the joint's variables; "
                "shorten prompt plus answer, or build a longer joint"
            )
        shown = torch.where(inputs.valid_BN, inputs.tokens_BN, 0)
        if int(shown.max()) > self.mask_id or int(shown.min()) < 0:
            bad = int(shown.max()) if int(shown.max()) > self.mask_id else int(shown.min())
            raise DenoiserError(
                f"a canvas holds token {bad}; allowed: 0 to {self.joint.vocab - 1}, or {self.mask_id} for a mask; "
                "encode the text with this model's tokenizer"
            )
