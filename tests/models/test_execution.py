"""Devices, types, memory and engines: the choice, and on a GPU what each engine promises."""

import json
import sys
import warnings
from dataclasses import replace

import pytest
import torch

from tests.helpers.gpu import gpu
from tests.helpers.paths import GOLDEN
from unmask.api.load import load
from unmask.base.errors import ConfigError, warn_once
from unmask.core import ModelInput, Needs, Noise, SamplingParams, State
from unmask.engine import decode
from unmask.methods import make_policy
from unmask.models import execution
from unmask.models.execution import (
    DTYPES,
    ENGINES,
    ExecutionMode,
    PassGraphs,
    choose_execution,
    dtype_name,
    find_kernel_problem,
    resolve_device,
    resolve_dtype,
    resolve_engine,
    use_engine,
)
from unmask.models.transformer import attend_lse

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")


@pytest.fixture(autouse=True)
def _nothing_remembered():
    warn_once.cache_clear()
    find_kernel_problem.cache_clear()
    yield
    find_kernel_problem.cache_clear()


# Devices, types and memory.


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_only_the_cpu_is_allowed():
    assert resolve_device("auto") == resolve_device("cpu") == CPU
    for name in ("cuda", "cuda:0", "mps", "gpu", ""):
        with pytest.raises(ConfigError, match=rf"device is '{name}'; allowed: auto, cpu; this machine has no other"):
            resolve_device(name)


def test_dtype_auto_follows_the_device():
    assert resolve_dtype("auto", CPU) == "fp32"
    assert resolve_dtype("auto", torch.device("cuda:0")) == "bf16"
    for name, dtype in DTYPES.items():
        assert resolve_dtype(name, CPU) == name
        assert dtype_name(dtype) == name
    with pytest.raises(ConfigError, match=r"dtype is 'int8'; allowed: auto, bf16, fp16, fp32; pick one"):
        resolve_dtype("int8", CPU)


# The choice of an engine.


def test_auto_is_fused_where_kernels_run(monkeypatch):
    monkeypatch.setattr(execution, "find_kernel_problem", lambda device: None)
    assert choose_execution("auto", CUDA) == ExecutionMode("fused", "fused kernels run here")
    assert [resolve_engine(name, CUDA) for name in ENGINES] == list(ENGINES)
    assert choose_execution("eager", CUDA).why == "asked for"


def test_auto_is_eager_on_a_cpu():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resolve_engine("auto", CPU) == resolve_engine("eager", CPU) == "eager"
    assert choose_execution("auto", CPU).why == "cpu is not a CUDA device: no graphs and no kernels there"


@pytest.mark.parametrize(
    ("capability", "triton", "reason"),
    [
        ((7, 5), True, r"cuda:0 has compute capability 7\.5, below 8\.0"),
        ((9, 0), False, r"Triton does not work here \(ModuleNotFoundError: import of triton halted"),
        # Without a GPU behind the pretence the first launch fails.
        pytest.param(
            *((9, 0), True, r"Triton does not work here \("),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
    ids=["an old GPU", "no Triton", "a driver that fails"],
)
def test_without_kernels_the_engine_is_graph_with_one_warning(capability, triton, reason, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    if not triton:
        monkeypatch.setitem(sys.modules, "triton", None)
        monkeypatch.delitem(sys.modules, "unmask.models.triton_kernels", raising=False)
    with pytest.warns(UserWarning, match=f"^the engine is graph, not fused: {reason}") as caught:
        assert [resolve_engine(name, CUDA) for name in ("auto", "fused", "auto", "graph")] == ["graph"] * 4
    assert len(caught) == 1
    assert choose_execution("auto", CUDA).why.startswith("no fused kernels: ")


@pytest.mark.parametrize(("name", "device"), [("fused", CPU), ("graph", CPU), ("quick", CUDA)])
def test_unknown_engines_are_refused(name, device):
    allowed = "auto, eager on cpu" if device == CPU else "auto, eager, graph, fused on cuda:0"
    with pytest.raises(ConfigError, match=rf"^engine is '{name}'; allowed: {allowed}; graphs need a CUDA device$"):
        resolve_engine(name, device)


# On a GPU.


@pytest.fixture
def on_gpu(transformer, network):
    """A network of its own on the GPU: `on_gpu("llada", torch.bfloat16)`."""

    def load(kind, dtype=torch.float32):
        return replace(network(kind), model=transformer(kind, dtype).to(CUDA), readout=(1, 2))

    return load


def a_view(net, rows=4, prompt=20, seed=0):
    draw = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 200, (prompt - b % 3,), generator=draw).tolist() for b in range(rows)]
    state = State.from_prompts(prompts, new_tokens=12, steps=6, mask_id=net.vocabulary.mask_id, device=CUDA)
    return ModelInput.of(state, Needs())


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["llada", "dream"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_plain_logits(engine, kind, dtype, on_gpu):
    net = on_gpu(kind, dtype)
    view, needs = a_view(net), Needs(attention=True)
    plain = net(view, needs)
    off, sharp = (1e-4, 1e-5) if dtype == torch.float32 else (0.6, 0.1)
    fast = use_engine(net, engine)
    for _ in range(3):  # plain, recorded, replayed
        got = fast(view, needs)
        if engine in ("eager", "graph"):
            assert torch.equal(got.logits_RV, plain.logits_RV)
            assert torch.equal(got.attention_BNN, plain.attention_BNN)
        torch.testing.assert_close(got.logits_RV.float(), plain.logits_RV.float(), rtol=0, atol=off)
        torch.testing.assert_close(got.attention_BNN, plain.attention_BNN, rtol=0, atol=sharp)


@gpu
@pytest.mark.parametrize("kind", ["llada", "dream"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replayed_kernels_have_the_bits_of_launched_ones(kind, dtype, on_gpu):
    """To the bit what they give when they are launched one by one; on other views of the shape, too."""
    net = on_gpu(kind, dtype)
    fast = use_engine(net, "fused")
    for seed in range(4):
        view = a_view(net, seed=seed)
        got = fast(view, Needs()).logits_RV.clone()
        assert torch.equal(got, replace(net, forward=None)(view, Needs()).logits_RV)


@gpu
@pytest.mark.parametrize("kind", ["llada", "dream"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_has_the_same_bits_beside_any_neighbours(kind, dtype, on_gpu):
    fast = use_engine(on_gpu(kind, dtype), "fused")
    view = a_view(fast, rows=8)
    whole = fast(view, Needs())
    owner_R = whole.slots.index_R // view.tokens_BN.shape[1]
    whole_RV = whole.logits_RV.clone()
    order = [3, 0, 7, 1, 2, 6, 5, 4]
    fields = ("tokens_BN", "position_BN", "valid_BN", "fixed_BN", "wanted_BN")
    turned = replace(view, **{name: getattr(view, name)[order] for name in fields})
    got_RV = fast(turned, Needs()).logits_RV
    assert torch.equal(got_RV, torch.cat([whole_RV[owner_R == b] for b in order]))


@gpu
def test_repeated_passes_record_and_allocate_nothing(on_gpu):
    fast = use_engine(on_gpu("llada", torch.bfloat16), "fused")
    view = a_view(fast)
    for _ in range(3):
        fast(view, Needs())
    assert isinstance(fast.forward, PassGraphs)
    recorded = dict(fast.forward.kept)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    for _ in range(5):
        fast(view, Needs())
    after = torch.cuda.memory_stats()
    assert dict(fast.forward.kept) == recorded
    for counter in ("num_alloc_retries", "segment.all.allocated", "num_device_alloc", "num_device_free"):
        assert after.get(counter) == before.get(counter), counter


@gpu
@pytest.mark.parametrize("kind", ["llada", "dream"])
def test_default_engine_decodes_the_authors_tokens(kind, scaled, tmp_path):
    """In float32 on small weights, as `checkpoints/test_parity.py` does on a CPU."""
    models = {}
    cases = json.loads((GOLDEN / f"{kind}_decodes.json").read_text())["cases"]
    for case in (c for c in cases if not c.get("cfg_scale") and not c.get("noise_calls")):
        key = tuple(case["checkpoint"].items())
        if key not in models:
            (folder := tmp_path / str(len(models))).mkdir()
            models[key] = load(getattr(scaled, kind)(folder, **case["checkpoint"]), device="cuda", dtype="fp32")
        assert models[key].options["engine"] == "fused"
        end = decode(models[key].denoiser, authors_policy(kind, case), authors_start(case), **authors_draws(kind, case))
        assert end.state.tokens_BL[0].tolist() == case["final"], case["id"]


def authors_start(case):
    new = case.get("gen_length", case.get("max_new_tokens"))
    return State.from_prompts(
        [case["prompt"]], new_tokens=new, steps=case["steps"], mask_id=case["mask_id"], device=CUDA
    )


def authors_policy(kind, case):
    if kind == "llada":
        return make_policy(kind, block_length=case["block_length"], remasking=case["remasking"])
    return make_policy(kind, alg=case["alg"], alg_temp=case["alg_temp"] or 0.0, eps=case["eps"])


def authors_draws(kind, case):
    filters = (case["top_p"] or 1.0, case["top_k"] or 0) if kind == "dream" else ()
    return {"noise": Noise.of([0], CUDA), "sampling": SamplingParams(case["temperature"], *filters)}


@gpu
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_grouped_keys_equal_their_copies(dtype):
    """The kernel's own grouping against a copy of each key head for each of its query heads."""
    draw = torch.Generator(CUDA).manual_seed(0)
    packed = torch.randn(3, 64, 36, 64, generator=draw, device=CUDA).to(dtype).transpose(1, 2)
    q, k, v = packed.split((28, 4, 4), 1)
    bias = torch.zeros(3, 1, 1, 64, dtype=dtype, device=CUDA)
    bias[1, ..., 40:] = float("-inf")
    grouped = attend_lse(q, k, v, bias)
    copied = attend_lse(q, k.repeat_interleave(7, 1), v.repeat_interleave(7, 1), bias)
    for one, other in zip(grouped, copied, strict=True):
        assert torch.equal(one, other)
