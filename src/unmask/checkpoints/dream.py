"""Dream (Dream-org/Dream-v0-Instruct-7B): Qwen2 blocks without causality; position i is read at slot i - 1."""

from unmask.checkpoints.config import CheckpointConfig
from unmask.checkpoints.family import Family
from unmask.checkpoints.weights import Names
from unmask.denoisers.transformer import Spec

NAMES = Names(
    embed="model.embed_tokens",
    norm="model.norm",
    head="lm_head",
    layer="model.layers.{}",
    attn_norm="input_layernorm",
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    out="self_attn.o_proj",
    mlp_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
)


def spec(config: CheckpointConfig) -> Spec:
    """The network config.json describes; whatever this code does not compute is refused."""
    config.only("tie_word_embeddings", False)
    config.only("hidden_act", "silu")
    config.only("use_sliding_window", False, default=False)
    config.only("use_mrope", False, default=False)
    config.only("attention_dropout", 0.0, 0, default=0.0)
    config.unused("sliding_window", "max_window_layers", "initializer_range")
    spec = Spec(
        vocab=config.whole("vocab_size"),
        width=config.whole("hidden_size"),
        layers=config.whole("num_hidden_layers"),
        heads=config.whole("num_attention_heads"),
        kv_heads=config.whole("num_key_value_heads"),
        mlp=config.whole("intermediate_size"),
        theta=config.theta(),
        eps=config.number("rms_norm_eps"),
        qkv_bias=True,
        rope_float32=False,
    )
    config.same(head_dim=spec.width // spec.heads, layer_types=["full_attention"] * spec.layers)
    return spec


DREAM = Family(
    name="dream",
    model_type="Dream",
    names=NAMES,
    spec=spec,
    shift=1,
    length="max_position_embeddings",
    # The file says 131,072 positions, the authors that the model was trained for 2,048.
    usable=2048,
    mask="<|mask|>",
    ends=("<|im_end|>",),
    policy="dream",
)
