"""LLaDA (GSAI-ML/LLaDA-8B-Instruct, GSAI-ML/LLaDA-1.5): Llama blocks without causality, RoPE in float32."""

from unmask.checkpoints.config import CheckpointConfig
from unmask.checkpoints.family import Family
from unmask.checkpoints.weights import Names
from unmask.denoisers.transformer import Spec

NAMES = Names(
    embed="model.transformer.wte",
    norm="model.transformer.ln_f",
    head="model.transformer.ff_out",
    layer="model.transformer.blocks.{}",
    attn_norm="attn_norm",
    q="q_proj",
    k="k_proj",
    v="v_proj",
    out="attn_out",
    mlp_norm="ff_norm",
    gate="ff_proj",  # SiLU acts on this one
    up="up_proj",
    down="ff_out",  # the head's word too, one level deeper
)


def spec(config: CheckpointConfig) -> Spec:
    """The network config.json describes; whatever this code does not compute is refused."""
    for key in ("alibi", "attention_layer_norm", "bias_for_layer_norm", "include_bias", "include_qkv_bias"):
        config.only(key, False)
    for key in ("input_emb_norm", "scale_logits", "weight_tying"):
        config.only(key, False)
    config.only("rope", True)
    config.only("rope_full_precision", True)
    config.only("activation_type", "silu")
    config.only("block_type", "llama")
    config.only("block_group_size", 1)
    config.only("layer_norm_type", "rms")
    config.only("layer_norm_with_affine", True, default=True)
    config.only("multi_query_attention", None, False, default=False)
    for key in ("attention_dropout", "embedding_dropout", "residual_dropout"):
        config.only(key, 0.0, 0, default=0.0)
    config.unused("alibi_bias_max", "attention_layer_norm_with_affine", "flash_attention", "mlp_ratio", "precision")
    config.unused("init_cutoff_factor", "init_device", "init_fn", "init_std")
    vocab = config.whole("vocab_size")
    config.only("embedding_size", vocab)
    spec = Spec(
        vocab=vocab,
        width=config.whole("d_model"),
        layers=config.whole("n_layers"),
        heads=config.whole("n_heads"),
        kv_heads=config.whole("n_kv_heads"),
        mlp=config.whole("mlp_hidden_size"),
        theta=config.theta(),
        eps=config.number("rms_norm_eps"),
        qkv_bias=False,
        rope_float32=True,
    )
    config.same(hidden_size=spec.width, num_hidden_layers=spec.layers, intermediate_size=spec.mlp)
    config.same(num_attention_heads=spec.heads, num_key_value_heads=spec.kv_heads, head_dim=spec.width // spec.heads)
    return spec


LLADA = Family(
    name="llada",
    model_type="llada",
    names=NAMES,
    spec=spec,
    shift=0,
    length="max_sequence_length",
    usable=None,
    mask="<|mdm_mask|>",
    ends=("<|eot_id|>",),
    policy="llada",
)
