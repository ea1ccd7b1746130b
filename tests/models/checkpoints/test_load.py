"""From a folder to a network: what is read, and which files are refused."""

import json
import os
import resource
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from unmask.base.errors import CheckpointError, NotEnoughMemory
from unmask.core import ModelInput, Needs, State
from unmask.models import Transformer
from unmask.models.checkpoints import DREAM, LLADA, load_checkpoint, load_weights, save_weights
from unmask.models.checkpoints.load import check_manifest, hash_file

CPU = torch.device("cpu")
INDEX = "model.safetensors.index.json"
SHARDS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
FAMILIES = {"llada": LLADA, "dream": DREAM}

kinds = pytest.mark.parametrize("kind", FAMILIES)


def load(folder, **options):
    return load_checkpoint(folder, **{"device": CPU, "dtype": torch.float32} | options)


def logits(got):
    """Of three blanks after a prompt."""
    mask_id = got.network.vocabulary.mask_id
    state = State.from_prompts([got.info.codec.encode("Hello")], new_tokens=3, steps=1, mask_id=mask_id)
    return got.network(ModelInput.of(state, Needs()), Needs()).logits_RV


@pytest.fixture
def untouched(monkeypatch):
    """Nothing may be allocated before the files are known to be right."""

    def refuse(*args):
        raise AssertionError("memory was taken")

    monkeypatch.setattr(Transformer, "empty", refuse)


# What works.


@kinds
def test_published_folder_becomes_a_network(kind, published, scaled):
    got = load(published[kind])
    special = scaled.special_ids(published[kind])
    config = json.loads((published[kind] / "config.json").read_text())
    ends = ("<|endoftext|>", {"llada": "<|eot_id|>", "dream": "<|im_end|>"}[kind])
    assert got.info.family is FAMILIES[kind]
    assert got.network.shift == (1 if kind == "dream" else 0)
    assert got.network.vocabulary.mask_id == config["mask_token_id"] == got.info.codec.mask_id
    assert got.network.vocabulary.eos_ids == tuple(special[text] for text in ends)
    # Dream's file says more positions than its authors trained for.
    assert got.info.max_length == (4096 if kind == "llada" else 2048)
    assert got.network.readout == (1, 2)
    assert not got.network.model.training
    assert not any(p.requires_grad for p in got.network.model.parameters())
    assert logits(got).isfinite().all()


@kinds
@pytest.mark.parametrize("layout", [{"single_file": True}, {"shards": 2}, {"shards": 9}])
def test_shards_make_the_same_network(kind, layout, published, scaled, tmp_path):
    spread = getattr(scaled, kind)(tmp_path, **layout)
    whole, other = (load(folder).network.model.state_dict() for folder in (published[kind], spread))
    assert all(torch.equal(whole[name], other[name]) for name in whole)
    names = json.loads((published["llada"] / INDEX).read_text())["weight_map"]
    assert len({file for name, file in names.items() if ".blocks.0." in name}) > 1


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_stored_dtype_becomes_the_one_asked_for(stored, dtype, scaled, tmp_path):
    folder = scaled.llada(tmp_path, dtype=stored, single_file=True)
    model = load(folder, dtype=dtype).network.model
    assert {p.dtype for p in model.parameters()} == {dtype}
    tensors = load_file(folder / "model.safetensors")
    assert tensors["model.transformer.wte.weight"].dtype == getattr(torch, stored)
    qkv = torch.cat([tensors[f"model.transformer.blocks.1.{name}_proj.weight"] for name in "qkv"])
    assert torch.equal(model.layers[1].qkv.weight, qkv.to(dtype))


def test_no_code_of_the_folder_runs(spoil):
    folder = spoil()
    for name in ("modeling_llada.py", "configuration_llada.py", "tokenization_llada.py", "__init__.py"):
        (folder / name).write_text(f"open({str(folder / 'ran')!r}, 'w'); raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    load(folder)
    assert not (folder / "ran").exists()


# The tokenizer fits the model.


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("llada", {"mask_token_id": 3}, r"tokenizer\.json has the ordinary token '\$' under the mask id 3; allowed: "),
        ("llada", {"mask_token_id": 511}, r"tokenizer\.json has no token under the mask id 511; .*different models"),
        ("llada", {"mask_token_id": 492}, r"'mask_token_id' in .* is 492, the token .*; allowed: .*<\|mdm_mask\|>"),
        ("dream", {"mask_token_id": 502}, r"'mask_token_id' in .* is 502, the token .*; allowed: .*<\|mask\|>"),
        ("llada", {"eos_token_id": 511}, r"tokenizer\.json has no token 511, which should end an answer"),
        ("llada", {"vocab_size": 500, "embedding_size": 500}, r"has the token .* with id 503; allowed: ids below 500"),
    ],
)
def test_tokenizers_of_other_models_are_refused(kind, changes, message, spoil):
    with pytest.raises(CheckpointError, match=message):
        load(spoil(kind, **changes))


def test_missing_chat_template_is_refused(spoil):
    folder = spoil()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"{folder} has no chat template; .*chat=False"):
        load(folder)
    assert load(folder, chat=False).info.codec.template is None


# The weights: each is refused before memory is taken.

WTE, Q, NORM = (f"model.transformer.{name}.weight" for name in ("wte", "blocks.1.q_proj", "ln_f"))


def change_index(folder, changes):
    names = json.loads((folder / INDEX).read_text())["weight_map"] | changes
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))


def change_tensor(folder, name, change):
    """Change one tensor where it lies; None takes it away."""
    path = folder / json.loads((folder / INDEX).read_text())["weight_map"][name]
    tensors = dict(load_file(path))
    tensor = tensors.pop(name)
    changed = change(tensor)
    save_file(tensors | ({} if changed is None else {name: changed}), path, metadata={"format": "pt"})


def add_tensor(folder, name):
    path = folder / SHARDS[2]
    save_file(dict(load_file(path)) | {name: torch.zeros(64)}, path, metadata={"format": "pt"})


def cut(folder, change):
    path = folder / SHARDS[1]
    path.write_bytes(change(path.read_bytes()))


DAMAGE = {
    "a missing shard": (lambda f: (f / SHARDS[0]).unlink(), rf"{SHARDS[0]} does not exist; .*incomplete, repeat it"),
    "no weights": (lambda f: [p.unlink() for p in f.glob("*.safetensors*")], "has no safetensors weights; .*pickles"),
    "half a shard": (lambda f: cut(f, lambda b: b[: len(b) // 2]), "cannot be read .*truncated or damaged"),
    "a huge header": (lambda f: cut(f, lambda b: b"\xff" * 7 + b"\0" + b[8:]), "cannot be read .*truncated or damaged"),
    "a pickle": (lambda f: cut(f, lambda b: b"\x80\x02}q\x00." * 100), "cannot be read .*truncated or damaged"),
    "another shape": (
        lambda f: change_tensor(f, Q, lambda t: t.flatten()[:-1].clone()),
        rf"tensor '{Q}' in .* has shape \(4095,\); allowed: \(64, 64\), by config.json; config and weights belong",
    ),
    "no embedding": (lambda f: change_tensor(f, WTE, lambda t: None), rf"has no tensor '{WTE}'; .*a shard is missing"),
    "an unknown tensor": (lambda f: add_tensor(f, "x"), "holds the tensor 'x'; allowed: the 30 tensors its config"),
    "a bias that config.json denies": (
        lambda f: add_tensor(f, "model.transformer.blocks.0.q_proj.bias"),
        r"holds the tensor 'model\.transformer\.blocks\.0\.q_proj\.bias'",
    ),
    "a tensor in two shards": (
        lambda f: shutil.copy(f / SHARDS[0], f / SHARDS[1]),
        "the tensor .* is in .*every",
    ),
    "quantised weights": (
        lambda f: change_tensor(f, Q, lambda t: t.to(torch.int8)),
        f"tensor '{Q}' in .* is stored as I8; allowed: F32, F16, BF16; .*scales",
    ),
    "an index without names": (lambda f: (f / INDEX).write_text("{}"), "has no usable 'weight_map'; .*download it"),
    "an index that points outside": (
        lambda f: change_index(f, {WTE: "../x.safetensors"}),
        "has no usable 'weight_map'; allowed: .*of this folder",
    ),
    "an index of other files": (lambda f: change_index(f, {WTE: "config.json"}), "has no usable 'weight_map'"),
    "an index of numbers": (lambda f: change_index(f, {WTE: 3}), "has no usable 'weight_map'"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_weights_are_refused_before_memory_is_taken(how, spoil, untouched):
    folder, (damage, message) = spoil(), DAMAGE[how]
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mlp_hidden_size": 96}, "config and weights belong to different models"),
        ({"n_kv_heads": 2}, "config and weights belong to different models"),
        ({"n_layers": 4}, r"has no tensor 'model\.transformer\.blocks\.3\."),
        ({"n_layers": 2}, r"holds the tensor 'model\.transformer\.blocks\.2\."),
    ],
)
def test_configurations_of_other_sizes_are_refused(changes, message, spoil, untouched):
    with pytest.raises(CheckpointError, match=message):
        load(spoil(**changes))


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", INDEX])
def test_pipes_are_refused(file, spoil):
    """Reading it would wait for ever."""
    folder = spoil()
    (folder / file).unlink()
    os.mkfifo(folder / file)
    with pytest.raises(CheckpointError, match=rf"{folder / file} cannot be read .no plain file but a pipe"):
        load(folder)


@pytest.mark.parametrize(("dtype", "need"), [(torch.float32, "0.7 GiB in fp32"), (torch.bfloat16, "0.4 GiB in bf16")])
def test_weights_larger_than_memory_are_refused(dtype, need, spoil, monkeypatch, untouched):
    """Refused before a shard is opened: there is none."""
    folder = spoil(d_model=1024, mlp_hidden_size=19000)
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    monkeypatch.setattr("unmask.models.checkpoints.load.free_memory", lambda _: 2**28)
    advice = "choose --dtype bf16, or use" if dtype == torch.float32 else "or use"
    message = rf"the weights need {need}; allowed: 0\.2 GiB, what cpu has free; free some, {advice} another"
    with pytest.raises(NotEnoughMemory, match=message):
        load(folder, dtype=dtype)


# Folders of our own.


@kinds
def test_saved_weights_equal_the_published_ones(kind, published, scaled, tmp_path):
    family, whole = FAMILIES[kind], getattr(scaled, kind)(tmp_path / "whole", single_file=True)
    model = load(published[kind]).network.model
    save_weights(model, family.names, tmp_path, dtype=torch.bfloat16)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    saved, stored = load_file(tmp_path / "model.safetensors"), load_file(whole / "model.safetensors")
    assert saved.keys() == stored.keys()
    assert all(saved[name].dtype == torch.bfloat16 and torch.equal(saved[name], stored[name]) for name in saved)
    again = load_weights(model.spec, family.names, tmp_path, "cpu", torch.float32)
    assert all(torch.equal(p, again.get_parameter(name)) for name, p in model.named_parameters())


def test_failed_save_leaves_no_file(published, tmp_path):
    """A file may grow to a thousand bytes; the error is the system's, not one of the library that packs tensors."""
    model = load(published["llada"]).network.model
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save_weights(model, LLADA.names, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_manifest_detects_changed_files(spoil):
    """Manifests of other programs are left alone."""
    folder = spoil()
    path = folder / "manifest.json"
    path.write_text('{"files": "elsewhere"}')
    assert check_manifest(folder) is None
    files = {file.name: hash_file(file) for file in folder.iterdir() if file != path}
    path.write_text(json.dumps({"config_sha256": "", "files": files}))
    assert load(folder).info.max_length == 4096
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    with pytest.raises(CheckpointError, match=r"not as its run left it: config\.json missing or changed; .*delete"):
        load(folder)
    path.write_text(json.dumps({"config_sha256": "", "files": {"../x": ""}}))
    with pytest.raises(CheckpointError, match=r"manifest\.json was changed; allowed: what `unmask train` wrote"):
        load(folder)
