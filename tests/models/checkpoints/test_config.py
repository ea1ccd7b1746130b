"""`config.json`: every key is used, refused by name, or known to change nothing; other families are named."""

import json
from dataclasses import asdict

import pytest

from unmask.base.errors import CheckpointError
from unmask.models.checkpoints import DREAM, LLADA, find_family, read_config

REFUSED, INERT = "refused", "inert"
kinds = pytest.mark.parametrize("kind", ["llada", "dream"])


def refused(**values):
    return {key: (value, REFUSED) for key, value in values.items()}


def inert(**values):
    return {key: (value, INERT) for key, value in values.items()}


# fmt: off
KEYS = {
    "llada": {
        "d_model": (128, {"width": 128}),
        "eos_token_id": (487, {"eos_token_id": 487}),
        "mask_token_id": (492, {"mask_token_id": 492}),
        "max_sequence_length": (512, {"max_length": 512}),
        "mlp_hidden_size": (96, {"mlp": 96}),
        "n_heads": (8, {"heads": 8}),
        "n_kv_heads": (2, {"kv_heads": 2}),
        "n_layers": (5, {"layers": 5}),
        "rms_norm_eps": (1e-06, {"eps": 1e-06}),
        "rope_theta": (10000.0, {"theta": 10000.0}),
        **refused(
            activation_type="gelu", alibi=True, architectures=["LLaDAMoEModelLM"], attention_layer_norm=True,
            bias_for_layer_norm=True, block_group_size=2, block_type="sequential", embedding_size=520,
            include_bias=True, include_qkv_bias=True, input_emb_norm=True, layer_norm_type="default",
            layer_norm_with_affine=False, model_type="llama", multi_query_attention=True, rope=False,
            rope_full_precision=False, scale_logits=True, vocab_size=520, weight_tying=True,
        ),
        **inert(
            alibi_bias_max=4.0, attention_dropout=0.1, attention_layer_norm_with_affine=False, auto_map={},
            embedding_dropout=0.1, flash_attention=True, init_cutoff_factor=3.0, init_device="cpu",
            init_fn="normal", init_std=0.1, mlp_ratio=2, pad_token_id=3, precision="fp32", residual_dropout=0.1,
            transformers_version="5.0.0", use_cache=True,
        ),
    },
    "dream": {
        "eos_token_id": (485, {"eos_token_id": 485}),
        "hidden_size": (128, {"width": 128}),
        "intermediate_size": (96, {"mlp": 96}),
        "mask_token_id": (502, {"mask_token_id": 502}),
        "max_position_embeddings": (512, {"max_length": 512}),
        "num_attention_heads": (8, {"heads": 8}),
        "num_hidden_layers": (5, {"layers": 5}),
        "num_key_value_heads": (4, {"kv_heads": 4}),
        "rms_norm_eps": (1e-05, {"eps": 1e-05}),
        "rope_theta": (10000.0, {"theta": 10000.0}),
        "vocab_size": (520, {"vocab": 520}),
        **refused(
            architectures=["Qwen2ForCausalLM"], hidden_act="gelu", model_type="qwen2", rope_scaling={"rope_type":
            "yarn", "factor": 4.0}, tie_word_embeddings=True, use_mrope=True, use_sliding_window=True,
        ),
        **inert(
            _name_or_path="elsewhere", attention_dropout=0.1, auto_map={}, bos_token_id=3, initializer_range=0.1,
            max_window_layers=1, pad_token_id=3, sliding_window=4096, torch_dtype="float32",
            transformers_version="5.0.0", use_cache=False,
        ),
    },
}
# fmt: on
"""Another value for every published key, and what comes of it."""

EVERY_KEY = [(kind, key) for kind, keys in KEYS.items() for key in keys]
OPTIONAL = {
    "layer_norm_with_affine",
    "multi_query_attention",
    "use_sliding_window",
    "use_mrope",
    "rope_scaling",
    "architectures",
}
"""Keys that younger files leave out; what is assumed is the only value that is allowed."""


def described(folder):
    """What a prediction depends on."""
    _, config = read_config(folder)
    keys = ("max_length", "mask_token_id", "eos_token_id")
    return asdict(config.spec) | {key: getattr(config, key) for key in keys}


@kinds
def test_table_has_every_published_key(kind, published):
    assert set(KEYS[kind]) == set(json.loads((published[kind] / "config.json").read_text()))
    assert read_config(published[kind])[1].unknown_keys == {}


@pytest.mark.parametrize(("kind", "key"), EVERY_KEY)
def test_changed_key_is_used_refused_or_inert(kind, key, spoil, published):
    value, outcome = KEYS[kind][key]
    folder = spoil(kind, **{key: value})
    if outcome == REFUSED:
        named = {"vocab_size": "embedding_size"}.get(key, key)
        with pytest.raises(CheckpointError, match=rf"{named}[\w.]*'?( of| in| is) .*; allowed: .*; .*"):
            described(folder)
        return
    before, after = described(published[kind]), described(folder)
    changed = {name: value for name, value in after.items() if value != before[name]}
    assert changed == ({} if outcome == INERT else outcome)


@pytest.mark.parametrize(("kind", "key"), EVERY_KEY)
def test_missing_key_is_not_guessed(kind, key, spoil, published, gone):
    folder = spoil(kind, **{key: gone})
    if KEYS[kind][key][1] == INERT or key in OPTIONAL:
        assert described(folder) == described(published[kind])
    elif key == "model_type":
        with pytest.raises(CheckpointError, match=r"'model_type' in .*config\.json is None .*; allowed: llada, Dream"):
            described(folder)
    else:
        with pytest.raises(CheckpointError, match=rf"config\.json .*{key}.*; allowed: .*the published"):
            described(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ({key: value}, rf"{key} of .* is .*; allowed: .*; check that the file is the published one")
            for key in ("d_model", "n_layers", "max_sequence_length")
            for value in ("64", 64.0, True, 0, -64, None, [64], 2**31, 10**30)
        ),
        *(
            ({key: value}, rf"{key} of .* is .*; allowed: .*; check that the file is the published one")
            for key in ("mask_token_id", "eos_token_id")
            for value in ("3", 3.0, True, -1, None)
        ),
        *(
            ({"rms_norm_eps": value}, r"rms_norm_eps of .* is .*; allowed: .*; check that the file is the published")
            for value in ("1e-5", True, 0, -1e-5, None)
        ),
        ({"rope_theta": 0}, "rope_theta of .* is 0; allowed: above 0"),
        ({"rope_theta": None}, "rope_theta is .*; allowed: one number"),
        ({"weight_tying": "no"}, "weight_tying of .* is 'no'; allowed: False"),
        ({"alibi": None}, "alibi of .* is None; allowed: False"),
        ({"n_heads": 3}, r"config\.json .*width is 64; allowed: a multiple of 6, .*published"),
        ({"n_kv_heads": 3}, r"config\.json .*kv_heads is 3; allowed: a divisor of 4, .*published"),
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types.* of .* is 'sliding_attention'; .*'full_attention'"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config' in .* would need quantised weights"),
        ({"num_experts": 64}, "'num_experts' in .* would need mixture-of-experts layers"),
        ({"is_decoder": True}, "'is_decoder' in .* would need causal attention"),
        ({"pruned_heads": {"0": [1]}}, "'pruned_heads' in .* would need pruned attention heads"),
        ({"tie_word_embeddings": True}, "'tie_word_embeddings' in .* would need a head tied"),
        ({"yarn_factor": 4}, "'yarn_factor' in .* would need scaled rotations"),
    ],
    ids=str,
)
def test_impossible_values_are_refused(changes, message, spoil):
    with pytest.raises(CheckpointError, match=message):
        read_config(spoil(**changes))


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@kinds
def test_plain_rotations_are_read_and_scaled_ones_refused(kind, key, spoil, published, gone):
    theta = json.loads((published[kind] / "config.json").read_text())["rope_theta"]
    for value in (None, {}, {"rope_type": "default"}, {"type": "default", "rope_theta": theta}):
        assert described(spoil(kind, **{key: value})) == described(published[kind])
    newer = spoil(kind, rope_theta=gone, **{key: {"rope_type": "default", "rope_theta": 777.0}})
    assert described(newer) == described(published[kind]) | {"theta": 777.0}
    for value in (
        {"type": "yarn", "factor": 4.0},
        {"rope_type": "default", "rope_theta": 3.0},
        {"rope_type": ["default"]},
        {"factor": 2.0},
        [1],
        "yarn",
    ):
        with pytest.raises(CheckpointError, match=r"config\.json describes no network: .*rope.*; check that"):
            read_config(spoil(kind, **{key: value}))


def test_repeated_sizes_change_nothing(spoil, published):
    same = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "head_dim": 16}
    same["layer_types"] = ["full_attention"] * 3
    assert described(spoil(**same)) == described(published["llada"])


OFF = {"is_decoder": False, "quantization_config": None, "pruned_heads": {}, "n_experts": 0, "add_cross_attention": ""}


@kinds
def test_unknown_keys_are_listed_and_change_nothing(kind, spoil, published):
    folder = spoil(kind, own_scale=0.5, **OFF, _commit_hash="0", temperature=0.7, max_length=20)
    assert described(folder) == described(published[kind])
    assert read_config(folder)[1].unknown_keys == {**OFF, "own_scale": 0.5}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe{}", b'{"a": 1, "a": 2}', b"[" * 100_000])
def test_damaged_file_is_named(content, spoil):
    path = spoil() / "config.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{path} .*; allowed: a (JSON object|text file).*download it again"):
        read_config(path.parent)


class TestOtherFamilies:
    @pytest.mark.parametrize(
        ("changes", "needs"),
        [
            (
                {"architectures": ["LLaDAMoEModelLM"], "num_experts": 64, "qk_layernorm": True},
                r"mixture-of-experts layers \(num_experts\); norms of queries and keys \(qk_layernorm\)",
            ),
            ({"model_type": "llada2_moe", "num_experts": 256}, r"mixture-of-experts layers \(num_experts\)"),
            ({"model_type": "sdar", "block_size": 4}, r"block-causal attention \(block_size\)"),
            ({"model_type": "gpt2"}, r"an entry in unmask\.models\.checkpoints\.FAMILIES, or a Denoiser"),
            ({"model_type": ["llada"]}, "an entry in"),
        ],
    )
    def test_other_families_are_refused_with_what_they_need(self, changes, needs, spoil, gone):
        """LLaDA-MoE says model_type llada and lacks LLaDA's keys: it is not told to restore them."""
        folder = spoil(**changes, alibi=gone)
        for read in (find_family, read_config):
            with pytest.raises(CheckpointError, match=rf"allowed: llada, Dream .*this network would need {needs}"):
                read(folder)

    def test_masked_language_models_are_recognized(self, spoil, published):
        assert (find_family(published["llada"]), find_family(published["dream"])) == (LLADA, DREAM)
        folder = spoil(model_type="bert", architectures=["BertForMaskedLM"])
        assert find_family(folder) is None
        with pytest.raises(CheckpointError, match=r"masked language model of transformers.*load it as masked-lm"):
            read_config(folder)
