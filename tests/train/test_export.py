"""The exported folder: published names and keys, read back by the code that reads published checkpoints."""

import hashlib
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unmask.core import ModelInput, Needs, State
from unmask.models.checkpoints import DREAM, LLADA, TextCodec, load_checkpoint, load_weights, read_config
from unmask.train.config import TrainConfig
from unmask.train.data import load_data
from unmask.train.export import export_model
from unmask.train.loss import token_losses
from unmask.train.sources import Folders
from unmask.train.trainer import SHIFT, Trainer

FAMILIES = {"llada": LLADA, "dream": DREAM}


@pytest.fixture(params=["llada", "dream"])
def exported(request, tables, cache, tmp_path):
    config = TrainConfig(**tables(**{"model.family": request.param}))
    data = load_data(config, Folders(), cache, lambda line: None, workers=1)
    trainer = Trainer(config, data, torch.device("cpu"))
    trainer.step(0)
    folder = tmp_path / "model"
    manifest = export_model(trainer.model, data.tokenizer, config, folder, {"steps": 1})
    return config, data, trainer.model, folder, manifest


def test_tensors_have_published_names_and_come_back(exported):
    config, _, model, folder, _ = exported
    family, published = read_config(folder)
    assert family is FAMILIES[config.model.family]
    spec = published.spec
    assert spec == model.spec
    loaded = load_weights(spec, family.names, folder, "cpu", torch.float32)
    for (name, ours), theirs in zip(model.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours.to(torch.bfloat16).float(), theirs), name


def test_decoding_sees_the_probabilities_that_training_saw(exported, tmp_path):
    """Same rows, same masks: the denoiser of the exported folder against the training loss."""
    config, data, model, _, _ = exported
    exact = config.model_copy(update={"run": config.run.model_copy(update={"export": "fp32"})})
    export_model(model, data.tokenizer, exact, tmp_path / "exact", {})
    network = load_checkpoint(tmp_path / "exact", device=torch.device("cpu"), dtype=torch.float32).network
    rows = data.training
    canvas = rows.tokens[: rows.length_E[0]].astype(int)
    masked = rows.prompt_E[0] + np.array([0, 1, 4, 9])
    tokens = torch.from_numpy(canvas)[None]
    places, shift = torch.from_numpy(masked), SHIFT[config.model.family]
    hidden = torch.zeros_like(tokens, dtype=torch.bool).index_fill(1, places, True)
    expected = token_losses(model, tokens, tokens >= 0, hidden, places, data.ids.mask, shift)
    blanked = canvas.copy()
    blanked[masked] = data.ids.mask
    state = State.from_canvases([blanked.tolist()], steps=1, mask_id=data.ids.mask)
    logits = network(ModelInput.of(state, Needs()), Needs()).logits_RV
    found = F.cross_entropy(logits, torch.from_numpy(canvas[masked]), reduction="none")
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_codec_reads_prompts_as_training_did(exported):
    config, data, _, folder, _ = exported
    family = FAMILIES[config.model.family]
    codec = TextCodec.read(
        folder, mask_id=data.ids.mask, vocab=config.tokenizer.size, ends=(data.ids.eos, *family.ends)
    )
    from unmask.tasks import find_task

    example = next(find_task("carry-rtl").training(config.seed * 10**9))
    row = data.training.tokens[: data.training.prompt_E[0]].tolist()
    assert codec.encode(example.prompt) == row
    answer = data.training.tokens[data.training.prompt_E[0] : data.training.length_E[0]].tolist()
    assert codec.answer(answer) == f"<answer>{example.target}</answer>"


def test_the_manifest_vouches_for_every_file(exported):
    config, _, model, folder, manifest = exported
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    names = {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert set(manifest["files"]) == names == FILES
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert manifest["parameters"] == sum(p.numel() for p in model.parameters())
    assert manifest["config"] == config.flatten()
    assert {"unmask", "torch", "tokenizers"} <= set(manifest["versions"])


FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
