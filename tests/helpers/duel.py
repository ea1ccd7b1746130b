"""The worked example of DUEL's sheet: a denoiser that is not the conditionals of any joint, so that orders matter."""

import json

from unmask.api.model import Model
from unmask.methods.examples import HOME, ScriptedDenoiser
from unmask.models import LetterCodec

SHEET = json.loads((HOME / "likelihood" / "duel.json").read_text(encoding="utf-8"))


def worked_model() -> Model:
    """P(x_i = 1) = sigmoid(b_i + sum over revealed j of W_ij s_j)."""
    b, w = SHEET["b"], SHEET["W"]

    def answer(tokens, slot, call):
        z = b[slot] + sum(w[slot][j] * (1 if t == 1 else -1) for j, t in enumerate(tokens) if t != 2 and j != slot)
        return [0.0, z]

    return Model("worked", ScriptedDenoiser(answer, 2), LetterCodec(2), {}, max_length=3)
