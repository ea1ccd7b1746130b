"""`config.json` as one model per family, with the network and the tensor names of LLaDA and Dream.

Every key that changes a forward pass is used, or must hold the one value that our network computes. No such key falls
back to a default of the published classes: their defaults (tied weights, other ids) are wrong for the published
weights. A new family is a subclass of `CheckpointConfig` and a `Family` in `FAMILIES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import ConfigDict, Field, model_validator

from unmask.base.errors import CheckpointError, ConfigError, format_value, require
from unmask.base.files import os_error_text, read_file
from unmask.base.json_files import parse_json
from unmask.base.options import Options
from unmask.models.transformer import Transformer, TransformerSpec

Size = Annotated[int, Field(ge=1, lt=2**31)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Theta = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]

COMMON_INERT_KEYS = """
architectures attention_dropout auto_map base_model_prefix bos_token_id chunk_size_feed_forward dtype
embedding_dropout finetuning_task gradient_checkpointing head_dim hidden_size id2label initializer_range
intermediate_size label2id max_length name_or_path num_attention_heads num_hidden_layers num_key_value_heads
num_labels output_attentions output_hidden_states pad_token_id problem_type residual_dropout return_dict
sep_token_id task_specific_params temperature tokenizer_class top_k top_p torch_dtype torchscript
transformers_version transformers_weights unsloth_fixed unsloth_version use_bfloat16 use_cache
"""
"""Keys of any family that change no prediction: training, bookkeeping, decoding in other programs.

Sizes in the words of transformers are among them, because the shapes of the weights would contradict wrong ones.
"""


class RopeParameters(Options):
    """Parameters of unscaled rotary embeddings, as newer versions of transformers write them."""

    rope_type: Literal["default"] = "default"
    type: Literal["default"] = "default"
    rope_theta: Theta = None


class CheckpointConfig(Options):
    """Keys of `config.json` that every family has; subclasses add their own, spelled as in the file."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    inert: ClassVar[frozenset[str]] = frozenset(COMMON_INERT_KEYS.split())
    """Known keys that are ignored because they change no prediction."""

    model_type: str
    mask_token_id: TokenId
    eos_token_id: TokenId
    rms_norm_eps: Positive
    rope_theta: Theta = None
    rope_scaling: RopeParameters | None = None
    rope_parameters: RopeParameters | None = None
    layer_types: tuple[Literal["full_attention"], ...] | None = None

    @property
    def theta(self) -> float:
        """Base of the rotary frequencies, which a file states in one to three places that must agree."""
        places = (self, self.rope_scaling, self.rope_parameters)
        stated = {part.rope_theta for part in places if part is not None and part.rope_theta is not None}
        hint = "defaults are not guessed, restore the published file"
        require(len(stated) == 1, "rope_theta", sorted(stated), "one number, here or in rope_parameters", hint)
        return float(stated.pop())

    @property
    def unknown_keys(self) -> dict[str, Any]:
        """Keys and values of the file that unmask does not know."""
        extra = self.model_extra or {}
        return {key: extra[key] for key in sorted(extra) if key not in self.inert and not key.startswith("_")}


class LLaDAConfig(CheckpointConfig):
    """LLaDA (GSAI-ML/LLaDA-8B-Instruct, GSAI-ML/LLaDA-1.5): Llama blocks without causality, RoPE in float32."""

    inert: ClassVar[frozenset[str]] = CheckpointConfig.inert | {
        *("alibi_bias_max", "attention_layer_norm_with_affine", "flash_attention", "init_cutoff_factor"),
        *("init_device", "init_fn", "init_std", "mlp_ratio", "precision"),
    }

    vocab_size: Size
    embedding_size: Size
    d_model: Size
    n_layers: Size
    n_heads: Size
    n_kv_heads: Size
    mlp_hidden_size: Size
    max_sequence_length: Size
    activation_type: Literal["silu"]
    alibi: Literal[False]
    attention_layer_norm: Literal[False]
    bias_for_layer_norm: Literal[False]
    block_group_size: Literal[1]
    block_type: Literal["llama"]
    include_bias: Literal[False]
    include_qkv_bias: Literal[False]
    input_emb_norm: Literal[False]
    layer_norm_type: Literal["rms"]
    layer_norm_with_affine: Literal[True] = True
    multi_query_attention: Literal[False] | None = None
    rope: Literal[True]
    rope_full_precision: Literal[True]
    scale_logits: Literal[False]
    weight_tying: Literal[False]

    @model_validator(mode="after")
    def _check_embedding(self) -> Self:
        # The published sizes are equal; with a larger embedding, ids above the vocabulary would be decoded.
        same = self.embedding_size == self.vocab_size
        require(same, "embedding_size", self.embedding_size, f"vocab_size, {self.vocab_size}", "restore the file")
        return self

    @property
    def spec(self) -> TransformerSpec:
        """Sizes of the network that the file describes."""
        sizes = (self.vocab_size, self.d_model, self.n_layers, self.n_heads, self.n_kv_heads, self.mlp_hidden_size)
        return TransformerSpec(*sizes, self.theta, self.rms_norm_eps, qkv_bias=False, rope_float32=True)

    @property
    def max_length(self) -> int:
        """Positions of the longest sequence."""
        return self.max_sequence_length


class DreamConfig(CheckpointConfig):
    """Dream (Dream-org/Dream-v0-Instruct-7B): Qwen2 blocks without causality, with biases of q, k and v."""

    # The sizes of windows mean nothing, because `use_sliding_window` must be off.
    inert: ClassVar[frozenset[str]] = CheckpointConfig.inert | {"max_window_layers", "sliding_window"}

    vocab_size: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    intermediate_size: Size
    max_position_embeddings: Size
    hidden_act: Literal["silu"]
    tie_word_embeddings: Literal[False]
    use_sliding_window: Literal[False] = False
    use_mrope: Literal[False] = False

    @property
    def spec(self) -> TransformerSpec:
        """Sizes of the network that the file describes."""
        heads = self.num_attention_heads, self.num_key_value_heads
        sizes = (self.vocab_size, self.hidden_size, self.num_hidden_layers, *heads, self.intermediate_size)
        return TransformerSpec(*sizes, self.theta, self.rms_norm_eps, qkv_bias=True, rope_float32=False)

    @property
    def max_length(self) -> int:
        """Positions of the longest sequence."""
        return self.max_position_embeddings


@dataclass(frozen=True)
class TensorNames:
    """Published names of the tensors of a checkpoint family."""

    layer: str
    """Prefix of a layer's tensors, with {} for the number of the layer."""
    modules: Mapping[str, tuple[str, ...]]
    """Published modules that each module of our network stacks; inside a layer they follow the prefix `layer`."""

    def map_parameters(self, spec: TransformerSpec) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
        """Map each of our parameters to the names and shapes of the published tensors that it stacks."""
        # On the meta device a network has shapes and no memory: the table follows from the modules themselves.
        with torch.device("meta"):
            network = Transformer(spec)
        table = {}
        for parameter, value in network.named_parameters():
            path, _, kind = parameter.rpartition(".")
            module = path.rpartition(".")[2]
            # Parameters of a layer are called layers.NUMBER.MODULE.KIND.
            prefix = f"{self.layer.format(path.split('.')[1])}." if path.startswith("layers.") else ""
            rows = getattr(network.get_submodule(path), "rows", value.shape[:1])
            parts = zip(self.modules[module], rows, strict=True)
            table[parameter] = [(f"{prefix}{name}.{kind}", (count, *value.shape[1:])) for name, count in parts]
        return table


@dataclass(frozen=True)
class Family:
    """A checkpoint family (LLaDA or Dream): how its files are read, beyond the numbers in `config.json`."""

    name: str
    model_type: str
    """The family's `model_type` in `config.json`."""
    architectures: tuple[str, ...]
    """Published classes that our network computes; LLaDA-MoE has the same model type, but another class."""
    config: type[LLaDAConfig | DreamConfig]
    names: TensorNames
    shift: int
    """Number of slots before a position at which its logits are read; 1 in models made from a causal one."""
    max_length: int | None
    """Longest canvas by the authors' word, if `config.json` states a larger one."""
    mask: str
    """Text of the mask token, compared with the tokenizer's: a wrong id would decode nonsense without an error."""
    ends: tuple[str, ...]
    """Tokens that end an answer, besides `eos_token_id` of `config.json`."""
    policy: str
    """Name of the method that the authors decode with, which is the model's reference policy."""


LLADA = Family(
    name="llada",
    model_type="llada",
    architectures=("LLaDAModelLM", "LLaDAModel"),
    config=LLaDAConfig,
    names=TensorNames(
        layer="model.transformer.blocks.{}",
        modules={
            "embed": ("model.transformer.wte",),
            "norm": ("model.transformer.ln_f",),
            "head": ("model.transformer.ff_out",),
            "attn_norm": ("attn_norm",),
            "qkv": ("q_proj", "k_proj", "v_proj"),
            "out": ("attn_out",),
            "mlp_norm": ("ff_norm",),
            # SiLU acts on ff_proj. The MLP's output is called as the head is, one level deeper.
            "gate_up": ("ff_proj", "up_proj"),
            "down": ("ff_out",),
        },
    ),
    shift=0,
    max_length=None,
    mask="<|mdm_mask|>",
    ends=("<|eot_id|>",),
    policy="llada",
)
DREAM = Family(
    name="dream",
    model_type="Dream",
    architectures=("DreamModel", "DreamBaseModel"),
    config=DreamConfig,
    names=TensorNames(
        layer="model.layers.{}",
        modules={
            "embed": ("model.embed_tokens",),
            "norm": ("model.norm",),
            "head": ("lm_head",),
            "attn_norm": ("input_layernorm",),
            "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "out": ("self_attn.o_proj",),
            "mlp_norm": ("post_attention_layernorm",),
            "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
            "down": ("mlp.down_proj",),
        },
    ),
    shift=1,
    # The file says 131,072 positions; the authors say that the model was trained for 2,048.
    max_length=2048,
    mask="<|mask|>",
    ends=("<|im_end|>",),
    policy="dream",
)
FAMILIES: dict[str, Family] = {family.model_type: family for family in (LLADA, DREAM)}
"""Supported families by `model_type` of `config.json`."""

NOT_COMPUTED = {
    "*expert*": "mixture-of-experts layers",
    "*qk_*norm*": "norms of queries and keys",
    "*vision*": "an image encoder",
    "yarn_*": "scaled rotations",
    "quantization_config": "quantised weights",
    "pruned_heads": "pruned attention heads",
    "is_decoder": "causal attention",
    "*cross_attention*": "cross-attention",
    "*_encoder_decoder": "an encoder beside the decoder",
    "tie_word_embeddings": "a head tied to the embedding",
}
"""Features that the network lacks, by patterns of the keys that switch them on."""


def find_family(folder: Path) -> Family | None:
    """Return the family of a checkpoint folder; None for a masked language model of transformers."""
    path = folder / "config.json"
    values = read_json(path)
    model_type, names = values.get("model_type"), values.get("architectures") or []
    names = [str(name) for name in names] if isinstance(names, list) else [str(names)]
    # LLaDA-MoE has LLaDA's model_type and other classes: without this check it would be told to restore LLaDA's keys.
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is not None and (not names or set(names) & set(family.architectures)):
        return family
    if family is None and any("MaskedLM" in name for name in names):
        return None
    # In our families the size of a block can only be one of decoding; in others it is one of attention.
    blocks = dict.fromkeys(("block_size", "bd_size"), "block-causal attention")
    needs = "; ".join(f"{need} ({key})" for key, need in find_missing_features(values, NOT_COMPUTED | blocks).items())
    supported = ", ".join(name for family in FAMILIES.values() for name in family.architectures)
    raise CheckpointError(
        f"'model_type' in {path} is {model_type!r} and 'architectures' is {names!r}; allowed: {', '.join(FAMILIES)} "
        f"with one of the architectures {supported}, or a masked LM of transformers (masked-lm); this network would "
        f"need {needs or 'an entry in unmask.models.checkpoints.FAMILIES, or a Denoiser (docs/extending.md)'}"
    )


def read_config(folder: Path) -> tuple[Family, LLaDAConfig | DreamConfig]:
    """Read and check the `config.json` of a checkpoint folder; return its family and its keys."""
    path, family = folder / "config.json", find_family(folder)
    values = read_json(path)
    if family is None:
        raise CheckpointError(
            f"{path} describes a masked language model of transformers ({values.get('model_type')!r}); allowed: "
            f"{', '.join(FAMILIES)}; load it as masked-lm"
        )
    # Keys of the family itself are checked by its model.
    extra = {key: value for key, value in values.items() if key not in family.config.model_fields}
    for key, need in find_missing_features(extra, NOT_COMPUTED).items():
        raise CheckpointError(
            f"{key!r} in {path} is {format_value(values[key], 200)}; allowed: null, false, 0 or empty; this network "
            f"would need {need}, which unmask does not compute"
        )
    try:
        config = family.config.from_table(values, path.name)
        config.spec  # noqa: B018  refuses numbers that do not fit each other
    except ConfigError as error:
        raise CheckpointError(
            f"{path} describes no network: {error}; check that the file is the published one"
        ) from error
    return family, config


def find_missing_features(values: Mapping[str, Any], patterns: Mapping[str, str]) -> dict[str, str]:
    """Return the features that a configuration needs and the network lacks, by the key that switches them on."""
    return {
        key: feature
        for key, value in values.items()
        for pattern, feature in patterns.items()
        if fnmatchcase(key, pattern) and not key.startswith("_") and not is_switched_off(value)
    }


def is_switched_off(value: Any) -> bool:
    """Tell whether a key's value switches its feature off: null, false, 0 or empty."""
    return value in (None, False, "", [], {})


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; refuse duplicate keys and name the file in errors."""
    try:
        document = parse_json(read_text(path))
    except ValueError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); allowed: a JSON object; the file is damaged, download it again"
        ) from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path} holds a {type(document).__name__}; allowed: a JSON object; download it again")
    return document


def read_text(path: Path) -> str:
    """Read a text file of a checkpoint folder; errors name the file."""
    try:
        return read_file(path).decode()
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({os_error_text(error)}); allowed: a text file of a checkpoint folder; check the "
            "path, or download it again"
        ) from error
