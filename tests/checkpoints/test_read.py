"""From a folder to a network: what is read, and everything that is refused, by file or key."""

import json
import os
import random
import resource
import shutil
import struct
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.helpers.cases import each_case
from tests.helpers.mutations import mutated
from unmask.base.errors import CheckpointError, ConfigError, NotEnoughMemory, UnmaskError
from unmask.checkpoints import device, weights
from unmask.checkpoints.dream import DREAM
from unmask.checkpoints.llada import LLADA
from unmask.checkpoints.read import read
from unmask.core import Needs, State, View
from unmask.denoisers.transformer import Transformer

CPU = torch.device("cpu")
INDEX = "model.safetensors.index.json"
SHARDS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
FAMILIES = {"llada": LLADA, "dream": DREAM}

kinds = pytest.mark.parametrize("kind", FAMILIES)


def load(folder, **options):
    return read(folder, **{"device": CPU, "dtype": torch.float32} | options)


@pytest.fixture(scope="session")
def published(scaled, tmp_path_factory):
    return {kind: getattr(scaled, kind)(tmp_path_factory.mktemp(kind)) for kind in FAMILIES}


@pytest.fixture
def copy(published, tmp_path):
    """A checkpoint to spoil: `copy("llada", alibi=True)` changes its config.json, GONE takes a key away."""

    def make(kind="llada", **changes):
        folder = shutil.copytree(published[kind], Path(mkdtemp(dir=tmp_path)) / kind)
        change_json(folder / "config.json", changes)
        return folder

    return make


GONE = object()


def change_json(path, changes):
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not GONE}))


@pytest.fixture
def described(monkeypatch):
    """What a folder's configuration means, without its weights."""

    def build(spec, names, folder, device, dtype, on_tensor=None):
        return Transformer.empty(spec, "meta", dtype)

    def describe(folder, **options):
        with monkeypatch.context() as patch:
            patch.setattr(weights, "load", build)
            got = load(folder, **options)
        vocabulary = got.network.vocabulary
        return asdict(got.network.model.spec) | {
            "length": got.length,
            "mask_id": vocabulary.mask_id,
            "eos_ids": vocabulary.eos_ids,
            "shift": got.network.shift,
            "family": got.family.model_type,
        }

    return describe


# What works.


@kinds
def test_a_published_folder(kind, published, scaled, reads_text):
    got = load(published[kind])
    special = scaled.special_ids(published[kind])
    config = json.loads((published[kind] / "config.json").read_text())
    assert got.family is FAMILIES[kind]
    assert got.network.shift == (1 if kind == "dream" else 0)
    assert got.network.vocabulary.mask_id == config["mask_token_id"] == got.codec.mask_id
    ends = ("<|endoftext|>", {"llada": "<|eot_id|>", "dream": "<|im_end|>"}[kind])
    assert got.network.vocabulary.eos_ids == tuple(special[text] for text in ends)
    assert got.length == (4096 if kind == "llada" else 2048)
    assert got.network.readout == (1, 2)
    assert not got.network.model.training
    assert not any(p.requires_grad for p in got.network.model.parameters())
    assert reads_text(got).isfinite().all()


@pytest.fixture
def reads_text():
    """Logits of a blank after a prompt."""

    def run(got):
        mask_id = got.network.vocabulary.mask_id
        state = State.from_prompts([got.codec.encode("Hello")], new_tokens=3, steps=1, mask_id=mask_id)
        return got.network(View.of(state, Needs()), Needs()).logits_RV

    return run


@kinds
@pytest.mark.parametrize("layout", [{"single_file": True}, {"shards": 2}, {"shards": 9}])
def test_any_spread_over_files(kind, layout, published, scaled, tmp_path):
    spread = getattr(scaled, kind)(tmp_path, **layout)
    assert len(list(spread.glob("*.safetensors"))) == layout.get("shards", 1)
    whole, other = (load(folder).network.model.state_dict() for folder in (published[kind], spread))
    assert all(torch.equal(whole[name], other[name]) for name in whole)


def test_a_layer_lies_in_several_files(published):
    names = json.loads((published["llada"] / INDEX).read_text())["weight_map"]
    assert len({file for name, file in names.items() if ".blocks.0." in name}) > 1


@each_case("stored", ["float32", "float16", "bfloat16"])
@each_case("dtype", list(device.DTYPES.values()))
def test_any_stored_type_becomes_the_one_asked_for(stored, dtype, scaled, tmp_path):
    folder = scaled.llada(tmp_path, dtype=stored)
    model = load(folder, dtype=dtype).network.model
    assert {p.dtype for p in model.parameters()} == {dtype}
    tensors = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    for name, part in weights.published(model, LLADA.names):
        assert tensors[name].dtype == getattr(torch, stored)
        assert torch.equal(part, tensors[name].to(dtype))


def test_half_precision_decodes(published, reads_text):
    for dtype in (torch.bfloat16, torch.float16):
        got = reads_text(load(published["llada"], dtype=dtype))
        assert got.dtype == dtype
        assert got.isfinite().all()


def test_a_link_to_a_shard_elsewhere(copy, tmp_path):
    """The hub's cache is made of these."""
    folder = copy()
    (folder / SHARDS[0]).rename(tmp_path / "blob")
    (folder / SHARDS[0]).symlink_to(tmp_path / "blob")
    assert load(folder).length == 4096


def test_progress_counts_every_byte(published):
    seen = {}
    model = load(published["dream"], on_tensor=lambda name, size: seen.update({name: size})).network.model
    assert set(seen) == set(dict(model.named_parameters()))
    assert sum(seen.values()) == 4 * model.spec.parameters


def test_no_code_of_the_folder_runs(copy):
    folder = copy()
    for name in ("modeling_llada.py", "configuration_llada.py", "tokenization_llada.py", "__init__.py"):
        (folder / name).write_text(f"open({str(folder / 'ran')!r}, 'w'); raise SystemExit")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    load(folder)
    assert not (folder / "ran").exists()


def test_layers_to_read_attention_from(published):
    assert load(published["llada"], readout=[0]).network.readout == (0,)
    for layers in ([], [3], [-1], [0, 7]):
        message = rf"readout is \[{', '.join(map(str, layers))}\]; allowed: layers 0 to 2, one or more; leave it out"
        with pytest.raises(ConfigError, match=message):
            load(published["llada"], readout=layers)


def test_prompts_with_and_without_a_chat_template(published):
    plain, chat = (load(published["llada"], chat=flag).codec for flag in (False, None))
    assert plain.template is None
    assert len(chat.encode("Hello")) > len(plain.encode("Hello"))


# Every key of config.json.

REFUSED, INERT = "refused", "inert"

KEYS = {
    "llada": {
        "activation_type": ("gelu", REFUSED),
        "alibi": (True, REFUSED),
        "alibi_bias_max": (4.0, INERT),
        "architectures": (["Other"], INERT),
        "attention_dropout": (0.1, REFUSED),
        "attention_layer_norm": (True, REFUSED),
        "attention_layer_norm_with_affine": (False, INERT),
        "auto_map": ({}, INERT),
        "bias_for_layer_norm": (True, REFUSED),
        "block_group_size": (2, REFUSED),
        "block_type": ("sequential", REFUSED),
        "d_model": (128, {"width": 128}),
        "embedding_dropout": (0.1, REFUSED),
        "embedding_size": (520, REFUSED),
        "eos_token_id": (487, {"eos_ids": (487, 503)}),
        "flash_attention": (True, INERT),
        "include_bias": (True, REFUSED),
        "include_qkv_bias": (True, REFUSED),
        "init_cutoff_factor": (3.0, INERT),
        "init_device": ("cpu", INERT),
        "init_fn": ("normal", INERT),
        "init_std": (0.1, INERT),
        "input_emb_norm": (True, REFUSED),
        "layer_norm_type": ("default", REFUSED),
        "layer_norm_with_affine": (False, REFUSED),
        "mask_token_id": (492, REFUSED),
        "max_sequence_length": (512, {"length": 512}),
        "mlp_hidden_size": (96, {"mlp": 96}),
        "mlp_ratio": (2, INERT),
        "model_type": ("llama", REFUSED),
        "multi_query_attention": (True, REFUSED),
        "n_heads": (8, {"heads": 8}),
        "n_kv_heads": (2, {"kv_heads": 2}),
        "n_layers": (5, {"layers": 5}),
        "pad_token_id": (3, INERT),
        "precision": ("fp32", INERT),
        "residual_dropout": (0.1, REFUSED),
        "rms_norm_eps": (1e-6, {"eps": 1e-6}),
        "rope": (False, REFUSED),
        "rope_full_precision": (False, REFUSED),
        "rope_theta": (1e4, {"theta": 1e4}),
        "scale_logits": (True, REFUSED),
        "transformers_version": ("5.0.0", INERT),
        "use_cache": (True, INERT),
        "vocab_size": (520, REFUSED),
        "weight_tying": (True, REFUSED),
    },
    "dream": {
        "_name_or_path": ("elsewhere", INERT),
        "architectures": (["Other"], INERT),
        "attention_dropout": (0.1, REFUSED),
        "auto_map": ({}, INERT),
        "bos_token_id": (3, INERT),
        "eos_token_id": (485, {"eos_ids": (485, 482)}),
        "hidden_act": ("gelu", REFUSED),
        "hidden_size": (128, {"width": 128}),
        "initializer_range": (0.1, INERT),
        "intermediate_size": (96, {"mlp": 96}),
        "mask_token_id": (502, REFUSED),
        "max_position_embeddings": (512, {"length": 512}),
        "max_window_layers": (1, INERT),
        "model_type": ("qwen2", REFUSED),
        "num_attention_heads": (8, {"heads": 8}),
        "num_hidden_layers": (5, {"layers": 5}),
        "num_key_value_heads": (4, {"kv_heads": 4}),
        "pad_token_id": (3, INERT),
        "rms_norm_eps": (1e-5, {"eps": 1e-5}),
        "rope_scaling": ({"rope_type": "yarn", "factor": 4.0}, REFUSED),
        "rope_theta": (1e4, {"theta": 1e4}),
        "sliding_window": (4096, INERT),
        "tie_word_embeddings": (True, REFUSED),
        "torch_dtype": ("float32", INERT),
        "transformers_version": ("5.0.0", INERT),
        "use_cache": (False, INERT),
        "use_mrope": (True, REFUSED),
        "use_sliding_window": (True, REFUSED),
        "vocab_size": (520, {"vocab": 520}),
    },
}
"""Another value for every published key, and what comes of it. Inert keys are about training, initialisation or other
programs, or are switched off by another key."""

EVERY_KEY = [(kind, key) for kind, keys in KEYS.items() for key in keys]
DEFAULTS = {"layer_norm_with_affine", "multi_query_attention", "attention_dropout", "embedding_dropout"}
DEFAULTS |= {"residual_dropout", "use_sliding_window", "use_mrope", "rope_scaling"}
"""Keys that younger files leave out; what is assumed is the only value that is allowed."""


@kinds
def test_no_key_is_forgotten(kind, published):
    assert set(KEYS[kind]) == set(json.loads((published[kind] / "config.json").read_text()))


@each_case(("kind", "key"), EVERY_KEY)
def test_a_key_with_another_value_is_used_or_refused(kind, key, copy, published, described):
    value, outcome = KEYS[kind][key]
    folder = copy(kind, **{key: value})
    if outcome == REFUSED:
        named = "embedding_size" if key == "vocab_size" else key
        with pytest.raises(CheckpointError, match=rf"'{named}' in {folder / 'config.json'} is .*; allowed: .*; .*"):
            described(folder)
        return
    before, after = described(published[kind]), described(folder)
    changed = {name: value for name, value in after.items() if value != before[name]}
    assert changed == ({} if outcome == INERT else outcome)


@each_case(("kind", "key"), EVERY_KEY)
def test_a_missing_key_is_not_guessed(kind, key, copy, published, described):
    folder = copy(kind, **{key: GONE})
    if KEYS[kind][key][1] == INERT or key in DEFAULTS:
        assert described(folder) == described(published[kind])
    elif key == "model_type":
        with pytest.raises(CheckpointError, match=r"'model_type' in .*config\.json is None; allowed: llada, Dream, or"):
            described(folder)
    else:
        with pytest.raises(CheckpointError, match=rf"config\.json has no key '{key}'; .*restore the key"):
            described(folder)


def test_a_larger_vocabulary_needs_both_keys(copy, described):
    assert described(copy(vocab_size=520, embedding_size=520))["vocab"] == 520


def test_a_long_dream_is_still_used_up_to_2048(copy, described):
    assert described(copy("dream", max_position_embeddings=32768))["length"] == 2048


UNKNOWN = {
    "yarn_factor": 4,
    "quantization_config": {"bits": 4},
    "pruned_heads": {"0": [1]},
    "is_decoder": True,
    "n_experts": 0,
    "extra_scale": 0.0,
}


@each_case("key", UNKNOWN)
@kinds
def test_an_unknown_key_is_refused_by_name_and_can_be_accepted(kind, key, copy, published, described):
    folder = copy(kind, **{key: UNKNOWN[key]})
    message = (
        rf"'{key}' in .*config\.json is .*; allowed: the keys of (llada|Dream) check.*--model-option accept={key} "
    )
    with pytest.raises(CheckpointError, match=message):
        described(folder)
    assert described(folder, accept=[key]) == described(published[kind])


@each_case("value", [None, False, "", [], {}])
@kinds
def test_an_unknown_key_that_is_switched_off_is_noted(kind, value, copy):
    assert load(copy(kind, n_experts=value, yarn_factor=None)).ignored == ("n_experts", "yarn_factor")


def test_what_is_accepted_must_be_an_unknown_key(copy, described):
    folder = copy(yarn_factor=4)
    for key in ("alibi", "nothing", "architectures"):
        with pytest.raises(
            ConfigError, match=rf"accept names '{key}'; allowed: keys of .* \(yarn_factor\); leave it out"
        ):
            described(folder, accept=["yarn_factor", key])


# As transformers 4 and 5 write them into any file, with values that are not the defaults.
GENERIC = {
    "_attn_implementation_autoset": True,
    "_commit_hash": "0" * 40,
    "bad_words_ids": [[1]],
    "begin_suppress_tokens": [1],
    "chunk_size_feed_forward": 64,
    "decoder_start_token_id": 1,
    "do_sample": True,
    "dtype": "float32",
    "finetuning_task": "chat",
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
    "max_length": 20,
    "num_beams": 4,
    "output_attentions": True,
    "prefix": "x",
    "problem_type": "regression",
    "repetition_penalty": 1.1,
    "return_dict": True,
    "sep_token_id": 2,
    "task_specific_params": {"x": 1},
    "temperature": 0.7,
    "tf_legacy_loss": True,
    "tokenizer_class": "Other",
    "top_k": 50,
    "top_p": 0.9,
    "torch_dtype": "float16",
    "torchscript": True,
    "transformers_version": "6.0.0",
    "typical_p": 0.9,
    "unsloth_version": "2026.1",
    "use_bfloat16": True,
}
OFF = {
    "add_cross_attention": False,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "pruned_heads": {},
    "quantization_config": None,
    "tie_encoder_decoder": False,
}


@kinds
def test_keys_of_any_configuration_are_no_obstacle(kind, copy, published, described):
    folder = copy(kind, **GENERIC, **OFF)
    assert described(folder) == described(published[kind])
    assert load(folder).ignored == tuple(sorted(OFF))


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@kinds
def test_rotations_that_are_not_scaled(kind, key, copy, published, described):
    folder = copy(kind)
    theta = json.loads((folder / "config.json").read_text())["rope_theta"]
    for value in (None, {}, {"rope_type": "default"}, {"type": "default", "rope_theta": theta}):
        change_json(folder / "config.json", {key: value})
        assert described(folder) == described(published[kind])


@kinds
def test_the_base_of_rotations_as_newer_tools_write_it(kind, copy, published, described):
    folder = copy(kind, rope_theta=GONE, rope_parameters={"rope_type": "default", "rope_theta": 777.0})
    assert described(folder) == described(published[kind]) | {"theta": 777.0}


@each_case(
    "value",
    [
        {"type": "yarn", "factor": 4.0},
        {"rope_type": "default", "rope_theta": 3.0},
        {"rope_type": ["default"]},
        {"factor": 2.0},
        [1],
        "yarn",
    ],
)
@each_case("key", ["rope_scaling", "rope_parameters"])
@kinds
def test_rotations_that_are_scaled(kind, key, value, copy, described):
    with pytest.raises(CheckpointError, match=rf"'{key}' in .*config\.json is .*; allowed: "):
        described(copy(kind, **{key: value}))


def test_what_is_said_twice_must_agree(copy, described, published):
    same = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "head_dim": 16}
    folder = copy(**same)
    assert described(folder) == described(published["llada"])
    for key in same:
        change_json(folder / "config.json", same | {key: 5})
        with pytest.raises(CheckpointError, match=rf"'{key}' in .* is 5; allowed: {same[key]}; the file contradicts"):
            described(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", INDEX])
def test_a_key_given_twice(file, copy):
    folder = copy()
    text = (folder / file).read_text().strip()
    (folder / file).write_text(f'{{"twice": 1, "twice": 1, {text[1:]}')
    with pytest.raises(CheckpointError, match=rf"{folder / file} cannot be read \(the key 'twice' is given twice\)"):
        load(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", INDEX])
def test_a_file_that_is_none(file, copy):
    folder = copy()
    (folder / file).unlink()
    os.mkfifo(folder / file)
    with pytest.raises(CheckpointError, match=rf"{folder / file} is no ordinary file; allowed: "):
        load(folder)


def test_a_settings_file_without_end(copy):
    folder = copy()
    with (folder / "config.json").open("ab") as file:
        file.truncate(2**40)
    with pytest.raises(CheckpointError, match=r"config\.json has 1,099,511,627,776 bytes; allowed: up to 268,435,456"):
        load(folder)


WHOLE = ["vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "max_sequence_length"]


@each_case("value", ["64", 64.0, True, 0, -64, None, [64], {}])
@each_case("key", WHOLE)
def test_a_size_that_is_no_whole_number(key, value, copy, described):
    message = rf"'{key}' in .*config\.json is .*; allowed: a whole number from 1 to 2147483647; check that"
    with pytest.raises(CheckpointError, match=message):
        described(copy(**{key: value}))


@each_case("key", ["mask_token_id", "eos_token_id"])
@each_case("value", ["3", 3.0, True, -1, None])
def test_an_id_that_is_no_whole_number(key, value, copy, described):
    with pytest.raises(CheckpointError, match=rf"'{key}' in .*config\.json is .*; allowed: a whole number from 0 to"):
        described(copy(**{key: value}))


@each_case("key", ["rope_theta", "rms_norm_eps"])
@each_case("value", ["1e-5", True, 0, -1e-5, None, float("nan"), float("inf")])
def test_a_number_that_is_none(key, value, copy, described):
    with pytest.raises(CheckpointError, match=rf"'{key}' in .*config\.json is .*; allowed: a number above 0; check"):
        described(copy(**{key: value}))


@pytest.mark.parametrize(
    ("key", "value"), [("alibi", 0), ("alibi", None), ("rope", 1), ("block_group_size", True), ("weight_tying", "no")]
)
def test_a_switch_of_another_type(key, value, copy, described):
    with pytest.raises(CheckpointError, match=rf"'{key}' in .* is {json.dumps(value)}; allowed: .*no code for another"):
        described(copy(**{key: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 3}, r"config\.json .*width is 64; allowed: a multiple of 6, .*published"),
        ({"d_model": 60}, r"config\.json .*width is 60; allowed: a multiple of 8, .*published"),
        ({"n_kv_heads": 3}, r"config\.json .*kv_heads is 3; allowed: a divisor of 4, .*published"),
    ],
)
def test_sizes_that_fit_no_network(changes, message, copy, described):
    with pytest.raises(CheckpointError, match=message):
        described(copy(**changes))


@each_case("value", [2**31, 2**40, 10**30])
@each_case("key", [*WHOLE, "mask_token_id", "eos_token_id"])
def test_an_absurd_number(key, value, copy, described):
    message = rf"'{key}' in .*config\.json is {value}; allowed: a whole number from . to 2147483647"
    with pytest.raises(CheckpointError, match=message):
        described(copy(**{key: value}))


@pytest.mark.parametrize("key", ["mlp_hidden_size", "d_model"])
def test_a_huge_number_is_only_too_large_for_this_machine(key, copy, described):
    with pytest.raises(NotEnoughMemory, match="the weights need"):
        described(copy(**{key: 2**31 - 8}))


@each_case("content", [b"", b"{", b"[]", b"3", b"null", b"\xff\xfe{}", b'{"model_type"', b"[" * 100_000])
def test_a_damaged_configuration(content, copy):
    folder = copy()
    (folder / "config.json").write_bytes(content)
    with pytest.raises(
        CheckpointError, match=rf"{folder / 'config.json'} .*; allowed: a JSON object; .*download it ag"
    ):
        load(folder)


def test_no_folder_and_no_configuration(copy, tmp_path):
    folder = copy()
    (folder / "config.json").unlink()
    for path in (folder, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match=rf"{path / 'config.json'} does not exist; .*check the path"):
            load(path)


def test_an_unknown_model_type(copy):
    folder = copy(model_type="bert")
    message = rf"'model_type' in {folder / 'config.json'} is 'bert'; allowed: llada, Dream, or a masked LM .*masked-lm"
    with pytest.raises(CheckpointError, match=message):
        load(folder)


# The tokenizer.


@pytest.mark.parametrize(
    ("mask_id", "what"),
    [(3, r"the ordinary token '\$'"), (511, "no token"), (512, "no token"), (2**31 - 1, "no token")],
)
def test_a_mask_id_that_is_no_added_token(mask_id, what, copy):
    folder = copy(mask_token_id=mask_id)
    message = rf"{folder / 'tokenizer.json'} has {what} under the mask id {mask_id}; allowed: .*config\.json belong to"
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_a_tokenizer_without_the_mask(copy):
    """Dream's is the last token, so that nothing else moves."""
    folder = copy("dream")
    settings = folder / "tokenizer_config.json"
    document = json.loads(settings.read_text())
    del document["added_tokens_decoder"]["503"]
    settings.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=rf"{settings} has no token under the mask id 503; .*different models"):
        load(folder)


@pytest.mark.parametrize("eos", [511, 512, 2**31 - 1])
def test_an_end_of_text_without_a_token(eos, copy):
    folder = copy(eos_token_id=eos)
    with pytest.raises(CheckpointError, match=rf"{folder / 'tokenizer.json'} has no token {eos}, which should end an"):
        load(folder)


def test_no_tokenizer(copy):
    folder = copy()
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer.*; allowed: "):
        load(folder)


# The weights.


def tensors_in(path):
    return dict(load_file(path))


def rewrite(path, tensors):
    save_file(tensors, path, metadata={"format": "pt"})


def listed(folder, changes):
    """Change the index; GONE takes a tensor off it."""
    names = json.loads((folder / INDEX).read_text())["weight_map"] | changes
    names = {name: file for name, file in names.items() if file is not GONE}
    change_json(folder / INDEX, {"weight_map": names})


def home_of(folder, name):
    return folder / json.loads((folder / INDEX).read_text())["weight_map"][name]


@pytest.fixture
def untouched(monkeypatch):
    """Nothing may be allocated before the files are known to be right."""

    def refuse(*args):
        raise AssertionError("memory was taken")

    monkeypatch.setattr(Transformer, "empty", refuse)


@pytest.mark.parametrize("shard", SHARDS)
def test_a_missing_shard(shard, copy, untouched):
    folder = copy()
    (folder / shard).unlink()
    with pytest.raises(CheckpointError, match=rf"{folder / shard} does not exist; .*incomplete, repeat it"):
        load(folder)


DAMAGE = {
    "empty": lambda content: b"",
    "half a length": lambda content: content[:5],
    "half a header": lambda content: content[:100],
    "header is no JSON": lambda content: content[:8] + b"x" + content[9:],
    "huge header": lambda content: struct.pack("<Q", 2**60) + content[8:],
    "half the data": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "one byte long": lambda content: content + b"\0",
    "a pickle": lambda content: b"\x80\x02}q\x00." * 100,
}


@each_case("how", DAMAGE)
def test_a_damaged_shard(how, copy, untouched):
    folder = copy()
    path = folder / SHARDS[1]
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    with pytest.raises(CheckpointError, match=rf"{path} cannot be read \(.*\); .*truncated or damaged, download it ag"):
        load(folder)


def test_a_shard_that_is_a_folder(copy):
    folder = copy()
    (folder / SHARDS[1]).unlink()
    (folder / SHARDS[1]).mkdir()
    with pytest.raises(CheckpointError, match=rf"{folder / SHARDS[1]} does not exist"):
        load(folder)


MUTATIONS = 150
NAMES = ["model.transformer.wte.weight", "model.transformer.blocks.1.q_proj.weight", "model.transformer.ln_f.weight"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_shape(name, copy, untouched):
    folder = copy()
    path = home_of(folder, name)
    tensors = tensors_in(path)
    shape = tuple(tensors[name].shape)
    tensors[name] = tensors[name].flatten()[:-1].clone()
    rewrite(path, tensors)
    message = rf"tensor '{name}' in {path} has shape \({len(tensors[name])},\); allowed: "
    with pytest.raises(CheckpointError, match=message) as caught:
        load(folder)
    assert f"allowed: {shape}, by config.json; config and weights belong to different models" in str(caught.value)


def test_a_transposed_matrix(copy):
    folder = copy("dream")
    name = "model.layers.1.mlp.down_proj.weight"
    path = home_of(folder, name)
    tensors = tensors_in(path)
    tensors[name] = tensors[name].T.contiguous()
    rewrite(path, tensors)
    with pytest.raises(CheckpointError, match=rf"'{name}' in {path} has shape \(160, 64\); allowed: \(64, 160\)"):
        load(folder)


@pytest.mark.parametrize("changes", [{"mlp_hidden_size": 96}, {"n_kv_heads": 2}, {"d_model": 128}])
def test_a_configuration_of_another_size(changes, copy, untouched):
    with pytest.raises(CheckpointError, match="config and weights belong to different models"):
        load(copy(**changes))


@pytest.mark.parametrize(("layers", "message"), [(4, "has no tensor"), (2, "holds the tensor")])
def test_a_configuration_of_another_depth(layers, message, copy, untouched):
    with pytest.raises(CheckpointError, match=rf"{message} 'model\.transformer\.blocks\.[23]\."):
        load(copy(n_layers=layers))


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_tensor(name, copy, untouched):
    folder = copy()
    path = home_of(folder, name)
    tensors = tensors_in(path)
    del tensors[name]
    rewrite(path, tensors)
    with pytest.raises(
        CheckpointError, match=rf"{path} lacks the tensor '{name}' that .*{INDEX} places there; .*again"
    ):
        load(folder)
    listed(folder, {name: GONE})
    with pytest.raises(CheckpointError, match=rf"{folder} has no tensor '{name}'; .*a shard is missing .*download"):
        load(folder)


@pytest.mark.parametrize("name", ["model.transformer.blocks.0.q_norm.weight", "model.transformer.wpe.weight", "x"])
def test_an_extra_tensor(name, copy, untouched):
    folder = copy()
    path = folder / SHARDS[2]
    rewrite(path, tensors_in(path) | {name: torch.zeros(64)})
    message = rf"{path} holds the tensor '{name}'; allowed: the 30 tensors its config\.json implies; .*different models"
    with pytest.raises(CheckpointError, match=message):
        load(folder)
    listed(folder, {name: SHARDS[2]})
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_biases_that_the_configuration_denies(copy, untouched):
    folder = copy()
    path = folder / SHARDS[0]
    name = "model.transformer.blocks.0.q_proj.bias"
    rewrite(path, tensors_in(path) | {name: torch.zeros(64)})
    with pytest.raises(CheckpointError, match=rf"holds the tensor '{name}'"):
        load(folder)


def test_a_tied_checkpoint_without_a_head(copy, untouched):
    folder = copy("dream")
    path = home_of(folder, "lm_head.weight")
    tensors = tensors_in(path)
    del tensors["lm_head.weight"]
    rewrite(path, tensors)
    listed(folder, {"lm_head.weight": GONE})
    with pytest.raises(CheckpointError, match=r"has no tensor 'lm_head\.weight'"):
        load(folder)


def test_shards_of_another_model(copy, published, untouched):
    folder = copy()
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    for path in published["dream"].glob("*.safetensors*"):
        shutil.copy(path, folder)
    with pytest.raises(CheckpointError, match=r"has no tensor 'model\.transformer\.wte\.weight'"):
        load(folder)


def header_of(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def put_header(path, header, data):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def overlap(header):
    first, second = sorted(header, key=lambda name: header[name]["data_offsets"])[:2]
    begin, end = header[first]["data_offsets"]
    header[second] |= {"data_offsets": [begin, end], "shape": header[first]["shape"]}


HEADERS = {
    "negative offsets": (lambda e: e.update(data_offsets=[-8, 8]), "has shape .* and offsets"),
    "offsets of no number": (lambda e: e.update(data_offsets=[0, True]), "has shape .* and offsets"),
    "three offsets": (lambda e: e.update(data_offsets=[0, 1, 2]), "has shape .* and offsets"),
    "huge offsets": (lambda e: e.update(data_offsets=[0, 2**62]), "has the bytes 0 to"),
    "offsets beyond all": (lambda e: e.update(data_offsets=[0, 2**80]), "has shape .* and offsets"),
    "offsets the wrong way": (lambda e: e.update(data_offsets=e["data_offsets"][::-1]), "has the bytes"),
    "a huge shape": (lambda e: e.update(shape=[2**40, 2**40]), "has the bytes"),
    "a negative shape": (lambda e: e.update(shape=[-1, -64]), "has shape .* and offsets"),
    "a shape of texts": (lambda e: e.update(shape=["64"]), "has shape .* and offsets"),
    "another type": (lambda e: e.update(dtype="F64"), "has the bytes"),
    "no type": (lambda e: e.pop("dtype"), "not described by"),
    "more": (lambda e: e.update(more=1), "not described by"),
}


@each_case("how", HEADERS)
def test_a_header_that_lies(how, copy, untouched):
    path = home_of(copy(), NAMES[0])
    header, data = header_of(path)
    change, why = HEADERS[how]
    change(header[NAMES[0]])
    put_header(path, header, data)
    with pytest.raises(CheckpointError, match=rf"{path} cannot be read \(ValueError: .*{why}.*download it again"):
        load(path.parent)


def test_tensors_that_overlap(copy, untouched):
    path = home_of(copy(), NAMES[0])
    header, data = header_of(path)
    header.pop("__metadata__")
    overlap(header)
    put_header(path, header, data)
    with pytest.raises(CheckpointError, match=rf"{path} cannot be read \(ValueError: the tensor .* begins at byte"):
        load(path.parent)


def test_a_tensor_twice_in_a_header(copy, untouched):
    path = home_of(copy(), NAMES[0])
    header, data = header_of(path)
    entry = json.dumps({NAMES[0]: header[NAMES[0]]})
    put_header(path, f"{entry[:-1]}, {json.dumps(header)[1:]}", data)
    with pytest.raises(CheckpointError, match=rf"{path} cannot be read .*the key '{NAMES[0]}' is given twice"):
        load(path.parent)


@pytest.mark.parametrize("order", [1, -1])
def test_a_tensor_in_two_shards(order, copy, untouched):
    """Whichever the index names: which of the two is meant is anybody's guess."""
    folder = copy()
    one, other = [folder / shard for shard in SHARDS[:2]][::order]
    name = next(iter(tensors_in(one)))
    rewrite(other, tensors_in(other) | {name: tensors_in(one)[name] + 1})
    with pytest.raises(
        CheckpointError, match=rf"the tensor '{name}' is in {folder / SHARDS[0]} and in .*every tensor once"
    ):
        load(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", SHARDS[0]])
def test_a_file_that_may_not_be_read(file, copy):
    folder = copy()
    (folder / file).chmod(0)
    with pytest.raises(CheckpointError, match=rf"{folder / file} cannot be read .*change its permissions"):
        load(folder)


@kinds
def test_files_spoilt_at_random(kind, copy):
    """Each is refused, or loads with the same weights; but for the tensors' own bytes, of which nobody keeps a hash."""
    folder, draw = copy(kind), random.Random(kind)
    (folder / "generation_config.json").write_text('{"_from_model_config": true, "eos_token_id": 3}')
    files, whole = sorted(folder.iterdir()), load(folder).network.model.state_dict()
    outcomes, messages = Counter(), []
    for _ in range(MUTATIONS // 2):
        path = draw.choice(files)
        before = path.read_bytes()
        path.write_bytes(mutated(before, draw))
        try:
            got = load(folder)
        except UnmaskError as error:
            messages.append(str(error))
            outcomes["refused"] += 1
        else:
            assert got.codec.decode(got.codec.encode("Hello"))
            same = all(torch.equal(tensor, whole[name]) for name, tensor in got.network.model.state_dict().items())
            changed = path.suffix == ".safetensors" and header_of(path)[1] != before[-len(header_of(path)[1]) :]
            assert same or changed, path
            outcomes["equal" if same else "other"] += 1
        path.write_bytes(before)
    assert all("; allowed: " in message for message in messages)
    assert min(outcomes["refused"], outcomes["equal"]) > 10


# The index.


@pytest.mark.parametrize("file", ["../x.safetensors", "/etc/passwd", "sub/x.safetensors", 3, None, ["x"], "."])
def test_an_index_that_points_elsewhere(file, copy, tmp_path, untouched):
    folder = copy()
    shutil.copy(folder / SHARDS[0], tmp_path / "x.safetensors")
    listed(folder, {NAMES[0]: file})
    with pytest.raises(CheckpointError, match=rf"{folder / INDEX} has no usable 'weight_map'; allowed: .*download"):
        load(folder)


@pytest.mark.parametrize("names", [GONE, {}, [], "x", None])
def test_an_index_without_names(names, copy, untouched):
    folder = copy()
    change_json(folder / INDEX, {"weight_map": names})
    with pytest.raises(CheckpointError, match=rf"{folder / INDEX} has no usable 'weight_map'; allowed: .*download"):
        load(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_an_index_that_names_other_files(file, copy, untouched):
    folder = copy()
    listed(folder, {NAMES[0]: file})
    with pytest.raises(CheckpointError, match=rf"{folder / INDEX} has no usable 'weight_map'; allowed: .*safetensors"):
        load(folder)


@pytest.mark.parametrize("file", ["", "..", "model-00004-of-00003.safetensors"])
def test_an_index_that_names_no_file(file, copy, untouched):
    folder = copy()
    listed(folder, {NAMES[0]: file})
    with pytest.raises(CheckpointError, match=r"does not exist; .*repeat it|no usable 'weight_map'"):
        load(folder)


def test_an_index_that_names_the_wrong_shard(copy, untouched):
    folder = copy()
    right = home_of(folder, NAMES[0])
    wrong = next(folder / shard for shard in SHARDS if folder / shard != right)
    listed(folder, {NAMES[0]: wrong.name})
    with pytest.raises(CheckpointError, match=rf"{wrong} lacks the tensor '{NAMES[0]}'"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_a_damaged_index(content, copy, untouched):
    folder = copy()
    (folder / INDEX).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{folder / INDEX} .*; allowed: a JSON object; .*download it again"):
        load(folder)


def test_no_weights_at_all(copy, untouched):
    folder = copy()
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    with pytest.raises(CheckpointError, match=rf"{folder} has no safetensors weights; .*pickles"):
        load(folder)


@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn])
def test_quantised_weights(stored, copy, untouched):
    folder = copy()
    path = next(folder.glob("model-00001-*.safetensors"))
    tensors = load_file(path)
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name].to(stored)}, path)
    with pytest.raises(
        CheckpointError, match=rf"tensor '{name}' in .* is stored as .*; allowed: F32, F16, BF16; .*scales"
    ):
        load(folder)


def test_a_folder_without_its_chat_template(copy):
    folder = copy()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match=rf"{folder} has no chat template; .*chat=False"):
        load(folder)
    assert load(folder, chat=False).codec.template is None


# Device, type, memory, engine.


@pytest.mark.parametrize(("dtype", "need"), [(torch.float32, "0.7 GiB in fp32"), (torch.bfloat16, "0.4 GiB in bf16")])
def test_weights_that_do_not_fit(dtype, need, copy, monkeypatch, untouched):
    """Said before a shard is opened: there is none."""
    folder = copy(d_model=1024, mlp_hidden_size=19000)
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    monkeypatch.setattr(device, "free_memory", lambda _: 2**28)
    advice = "choose --dtype bf16, or use" if dtype == torch.float32 else "or use"
    message = rf"the weights need {need}; allowed: 0\.2 GiB, what cpu has free; free some, {advice} another"
    with pytest.raises(NotEnoughMemory, match=message):
        load(folder, dtype=dtype)


def test_weights_that_just_fit(published, monkeypatch):
    size = load(published["llada"]).network.model.spec.parameters * 4
    for free in (size, None):
        monkeypatch.setattr(device, "free_memory", lambda _, free=free: free)
        load(published["llada"])
    monkeypatch.setattr(device, "free_memory", lambda _: size - 1)
    with pytest.raises(NotEnoughMemory):
        load(published["llada"])


def test_free_memory_of_this_machine(monkeypatch):
    assert device.free_memory(CPU) > 2**20

    def no_proc(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert device.free_memory(CPU) > 2**20


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_devices_without_a_gpu():
    assert device.resolve_device("auto") == device.resolve_device("cpu") == CPU
    for name in ("cuda", "cuda:0", "mps", "gpu", ""):
        with pytest.raises(ConfigError, match=rf"device is '{name}'; allowed: auto, cpu; this machine has no other"):
            device.resolve_device(name)


def test_types():
    assert device.resolve_dtype("auto", CPU) == torch.float32
    assert device.resolve_dtype("auto", torch.device("cuda:0")) == torch.bfloat16
    for name, dtype in device.DTYPES.items():
        assert device.resolve_dtype(name, CPU) == dtype
        assert device.short_name(dtype) == name
    with pytest.raises(ConfigError, match=r"dtype is 'int8'; allowed: auto, bf16, fp16, fp32; pick one"):
        device.resolve_dtype("int8", CPU)


@pytest.mark.parametrize("engine", ["graph", "compile", "fast"])
def test_engines_that_need_a_gpu(engine, published, monkeypatch, untouched):
    message = rf"engine is '{engine}'; allowed: auto, eager on cpu; graphs need a CUDA device"
    with pytest.raises(ConfigError, match=message):
        load(published["llada"], engine=engine)


# Writing.


@kinds
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_what_is_saved_is_loaded_again(kind, shards, published, tmp_path):
    family = FAMILIES[kind]
    model = load(published[kind]).network.model
    weights.save(model, family.names, tmp_path, shards)
    again = weights.load(model.spec, family.names, tmp_path, "cpu", torch.float32)
    assert all(torch.equal(p, again.get_parameter(name)) for name, p in model.named_parameters())
    files = sorted(path.name for path in tmp_path.iterdir())
    assert not any(name.endswith(".partial") for name in files)
    if shards == 1:
        assert files == ["model.safetensors"]
    else:
        assert files == [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)] + [INDEX]
        index = json.loads((tmp_path / INDEX).read_text())
        assert index["metadata"]["total_size"] == 4 * model.spec.parameters
        ours = json.loads((published[kind] / INDEX).read_text())["weight_map"]
        assert set(index["weight_map"]) == set(ours)
        assert set(index["weight_map"].values()) == set(files) - {INDEX}


def test_saved_in_another_type_and_as_published(published, tmp_path):
    model = load(published["llada"]).network.model
    weights.save(model, LLADA.names, tmp_path, dtype=torch.bfloat16)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    saved = tensors_in(tmp_path / "model.safetensors")
    shards = {name: t for path in published["llada"].glob("*.safetensors") for name, t in tensors_in(path).items()}
    assert saved.keys() == shards.keys()
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    assert all(torch.equal(saved[name], shards[name]) for name in saved)


def test_a_failed_save_leaves_nothing_that_could_be_trusted(published, tmp_path):
    """A file may grow to a thousand bytes; the error is the system's, not one of the library that packs tensors."""
    model = load(published["llada"]).network.model
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            weights.save(model, LLADA.names, tmp_path, shards=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_saving_over_another_checkpoint(published, tmp_path):
    model = load(published["llada"]).network.model
    weights.save(model, LLADA.names, tmp_path, shards=2)
    model.get_parameter("norm.weight").zero_()
    for shards in (1, 2, 3, 1):
        model.get_parameter("norm.weight").add_(1)
        weights.save(model, LLADA.names, tmp_path, shards)
        again = weights.load(model.spec, LLADA.names, tmp_path, "cpu", torch.float32)
        assert torch.equal(again.norm.weight, model.norm.weight)


def test_a_saved_folder_is_a_checkpoint(copy, reads_text):
    folder = copy("dream")
    before = load(folder)
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    weights.save(before.network.model, DREAM.names, folder, shards=3)
    assert torch.equal(reads_text(load(folder)), reads_text(before))
