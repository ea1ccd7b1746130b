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


def test_noise():
    for check in CHECKS["noise_checks"]:
        values = np.random.default_rng([check["noise_seed"], check["call"]]).random(check["shape"]).flatten()
        assert values[: len(check["values"])].tolist() == check["values"]
