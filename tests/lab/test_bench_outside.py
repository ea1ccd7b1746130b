"""Checkouts of others' code: found, imported, left alone."""

import sys

import pytest
import torch

from tests.helpers.tiny_bench import subject
from unmask.base.errors import ConfigError, UnknownName
from unmask.lab.bench_outside import (
    PlainModelling,
    authors_loops,
    fast_dllm_loops,
    read_checkouts,
)

LOOP = """
import torch
from transformers import AutoTokenizer, AutoModel

def generate(model, prompt, steps=1, gen_length=1, block_length=1, temperature=0., mask_id=0, threshold=None):
    blanks = torch.full((len(prompt), gen_length), mask_id)
    canvas = torch.cat((prompt, blanks), 1)
    return torch.where(canvas == mask_id, model(canvas).logits.argmax(-1), canvas)
"""
CONFIGURATION = """
from transformers import AutoConfig, PretrainedConfig

class ModelConfig:
    def __init__(self, **settings):
        self.__dict__.update(settings)

class LLaDAConfig(PretrainedConfig):
    pass
"""
MODELLING = """
import torch
from torch import nn
from einops import rearrange
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.auto import AutoModel
from .configuration_llada import LLaDAConfig

class LLaDAModel(nn.Module):
    def __init__(self, config, init_params):
        super().__init__()
        assert config.init_device == "meta" and not init_params
        width, vocab, mlp, kv = config.d_model, config.vocab_size, config.mlp_hidden_size, config.n_kv_heads
        def linear(rows, columns):
            return nn.Linear(columns, rows, bias=False, device="meta")
        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.empty(width, device="meta"))
        def block():
            names = dict.fromkeys(("q_proj", "k_proj", "v_proj", "attn_out"), (width, width))
            names |= {"ff_proj": (mlp, width), "up_proj": (mlp, width), "ff_out": (width, mlp)}
            made = {name: linear(*shape) for name, shape in names.items()}
            return nn.ModuleDict(made | {"attn_norm": Scale(), "ff_norm": Scale()})
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width, device="meta"), "ln_f": Scale(), "ff_out": linear(vocab, width),
            "blocks": nn.ModuleList(block() for _ in range(config.n_layers)),
        })

class LLaDAModelLM(PreTrainedModel):
    def __init__(self, config, model=None):
        super().__init__(config)
        self.model = model
    def forward(self, tokens):
        parts = self.model.transformer
        return CausalLMOutputWithPast(logits=parts["ff_out"](parts["wte"](tokens)))

AutoModel.register(LLaDAConfig, LLaDAModelLM)
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "generate.py").write_text(LOOP)
    return tmp_path


def test_what_is_typed_is_checked_before_anything_is_run(checkout):
    assert read_checkouts([f"authors={checkout}"]) == {"authors": checkout}
    with pytest.raises(ConfigError, match="NAME=PATH"):
        read_checkouts(["authors"])
    with pytest.raises(UnknownName, match="known: authors, fast-dllm"):
        read_checkouts([f"author={checkout}"])
    with pytest.raises(ConfigError, match=r"has no file llada/generate.py; allowed: a checkout"):
        read_checkouts([f"fast-dllm={checkout}"])
    with pytest.raises(ConfigError, match="authors once"):
        read_checkouts([f"authors={checkout}"] * 2)


def test_a_loop_alone_runs_on_our_modelling(checkout):
    one = subject()
    before = set(sys.modules)
    ((label, loop),) = authors_loops("tiny", one.network, checkout, answer=8, block=4).items()
    assert label == "authors' loop on our plain modelling"
    prompt = torch.tensor(one.draw_prompts(2, 8))
    tokens = loop(prompt, 4)
    assert torch.equal(tokens[:, :8], prompt)
    canvas = one.make_state(2).tokens_BL
    assert torch.equal(tokens[:, 8:], PlainModelling(one.network.model)(canvas).logits.argmax(-1)[:, 8:])
    assert set(sys.modules) == before
    assert not list(checkout.rglob("__pycache__"))


def test_modelling_beside_the_loop_runs_on_the_same_weights(checkout):
    (checkout / "modeling_llada.py").write_text(MODELLING)
    (checkout / "configuration_llada.py").write_text(CONFIGURATION)
    one = subject()
    ((label, loop),) = authors_loops("tiny", one.network, checkout, answer=8, block=4).items()
    assert label == "authors' loop on their modelling"
    theirs = loop.model.model.transformer
    own = one.network.model
    assert theirs["wte"].weight.data_ptr() == own.embed.weight.data_ptr()
    assert torch.equal(theirs["blocks"][1]["k_proj"].weight, own.layers[1].qkv.weight[32:64])
    assert loop(torch.tensor(one.draw_prompts(1, 8)), 4).shape == (1, 16)


def test_fast_dllm_has_three_loops_on_its_own_modelling(tmp_path):
    (tmp_path / "llada" / "model").mkdir(parents=True)
    names = ("generate_with_prefix_cache", "generate_with_dual_cache")
    loops = "".join(f"\n{name} = generate" for name in names)
    (tmp_path / "llada" / "generate.py").write_text(f"from model.modeling_llada import LLaDAModelLM\n{LOOP}{loops}\n")
    (tmp_path / "llada" / "model" / "__init__.py").write_text("")
    (tmp_path / "llada" / "model" / "modeling_llada.py").write_text(MODELLING)
    (tmp_path / "llada" / "model" / "configuration_llada.py").write_text(CONFIGURATION)
    folder = read_checkouts([f"fast-dllm={tmp_path}"])["fast-dllm"]
    loops = fast_dllm_loops("tiny", subject().network, folder, answer=8, block=4)
    assert list(loops) == ["prefix", "dual", "dual, threshold"]
    assert "threshold" not in loops["dual"].settings
    assert loops["dual, threshold"].settings["threshold"] == 0.9
    assert "model" not in sys.modules


def test_code_that_cannot_be_imported_is_one_message(checkout):
    (checkout / "generate.py").write_text("raise RuntimeError('no such thing')")
    with pytest.raises(ConfigError, match="cannot be used: RuntimeError: no such thing"):
        authors_loops("tiny", subject().network, checkout, answer=8, block=4)
