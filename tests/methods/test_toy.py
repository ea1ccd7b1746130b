"""The network and the noise in `conftest.py` are those the golden numbers were made with."""

import json

import numpy as np
import torch

from tests.helpers.paths import GOLDEN
from tests.methods.conftest import Toy
from unmask.core import ModelInput, Needs

CHECKS = json.loads((GOLDEN / "toy.json").read_text())


def test_logits():
    for check in CHECKS["logit_checks"]:
        tokens_BN = torch.tensor([check["tokens"]])
        every_BN = torch.ones_like(tokens_BN, dtype=torch.bool)
        rows = check["attention_rows"]
        inputs = ModelInput(
            tokens_BN=tokens_BN,
            position_BN=torch.tensor([check["position_ids"]]),
            valid_BN=every_BN,
            fixed_BN=~every_BN,
            wanted_BN=every_BN,
            attend_BNN=None if rows is None else torch.tensor([[[c == "1" for c in row] for row in rows]]),
        )
        answer = Toy(check["toy_seed"])(inputs, Needs())
        assert answer.logits_RV.dtype == torch.float32
        torch.testing.assert_close(answer.logits_RV, torch.tensor(check["logits"]), rtol=1e-6, atol=1e-6)


def test_padding_and_unwanted_slots_change_nothing():
    tokens_BN = torch.tensor([[3, 11, 7, 11]])
    every_BN = torch.ones_like(tokens_BN, dtype=torch.bool)
    plain = ModelInput(tokens_BN, torch.arange(4)[None], every_BN, ~every_BN, every_BN)
    pad = torch.nn.functional.pad
    padded = ModelInput(
        pad(tokens_BN, (0, 2), value=5),
        torch.arange(6)[None],
        pad(every_BN, (0, 2), value=False),
        pad(~every_BN, (0, 2), value=False),
        torch.tensor([[False, True, False, True, False, False]]),
    )
    whole, part = Toy(1)(plain, Needs()), Toy(1)(padded, Needs())
    assert torch.equal(part.logits_RV, whole.logits_RV[[1, 3]])


def test_noise():
    for check in CHECKS["noise_checks"]:
        values = np.random.default_rng([check["noise_seed"], check["call"]]).random(check["shape"]).flatten()
        assert values[: len(check["values"])].tolist() == check["values"]
