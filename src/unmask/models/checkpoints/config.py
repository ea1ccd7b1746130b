"""`config.json` as one model per family, with the network and the tensor names of LLaDA and Dream.

Every key that changes a forward pass is used, or must hold the one value that our network has code for. No such key
has a default of the published classes: their defaults (tied weights, other ids) are wrong for the published weights.
A new family is a subclass of `CheckpointConfig` and a `Family` in `FAMILIES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from unmask.base.errors import CheckpointError, ConfigError, format_value, require
from unmask.base.files import os_error_text, read_file
from unmask.base.json_files import parse_json
from unmask.base.options import Options
from unmask.models.transformer import TransformerSpec

Size = Annotated[int, Field(ge=1, lt=2**31)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RopeParameters(Options):
    """Plain rotations as newer versions of transformers write them. Scaled rotations have further keys."""

    rope_type: Literal["default"] = "default"
    type: Literal["default"] = "default"
    rope_theta: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None


class CheckpointConfig(Options):
    """Keys that every family has. Subclasses add their own, spelled as in the file."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    inert: ClassVar[frozenset[str]] = frozenset(
        [
            *("architectures", "auto_map", "base_model_prefix", "bos_token_id", "chunk_size_feed_forward", "dtype"),
            *("finetuning_task", "gradient_checkpointing", "head_dim", "hidden_size", "id2label", "initializer_range"),
            *(
                "intermediate_size",
                "label2id",
                "max_length",
                "name_or_path",
                "num_attention_heads",
                "num_hidden_layers",
            ),
            *("num_key_value_heads", "num_labels", "output_attentions", "output_hidden_states", "pad_token_id"),
            *("problem_type", "return_dict", "sep_token_id", "task_specific_params", "temperature", "tokenizer_class"),
            *("top_k", "top_p", "torch_dtype", "torchscript", "transformers_version", "transformers_weights"),
            *("unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache", "attention_dropout"),
            *("embedding_dropout", "residual_dropout"),
        ]
    )
    """Keys that change no prediction: training, bookkeeping, decoding in other programs, and sizes in their words,
    which the shapes of the weights would contradict."""

    sizes: ClassVar[Mapping[str, str]]
    """Field of `TransformerSpec` -> key of the file."""
    length: ClassVar[str]
    """Key of `max_length`."""
    qkv_bias: ClassVar[bool]
    rope_float32: ClassVar[bool]

    model_type: str
    mask_token_id: TokenId
    eos_token_id: TokenId
    rms_norm_eps: Positive
    rope_theta: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    rope_scaling: RopeParameters | None = None
    rope_parameters: RopeParameters | None = None
    layer_types: tuple[Literal["full_attention"], ...] | None = None

    @property
    def theta(self) -> float:
        """Base of the rotary frequencies, which files state in one of three places."""
        nested = [part.rope_theta for part in (self.rope_scaling, self.rope_parameters) if part is not None]
        stated = {float(theta) for theta in (self.rope_theta, *nested) if theta is not None}
        hint = "defaults are not guessed, restore the published file"
        require(len(stated) == 1, "rope_theta", sorted(stated), "one number, here or in rope_parameters", hint)
        return stated.pop()

    @property
    def spec(self) -> TransformerSpec:
        """The network that the file describes."""
        sizes = {ours: getattr(self, theirs) for ours, theirs in self.sizes.items()}
        return TransformerSpec(
            **sizes, theta=self.theta, eps=self.rms_norm_eps, qkv_bias=self.qkv_bias, rope_float32=self.rope_float32
        )

    @property
    def max_length(self) -> int:
        """Positions of the longest sequence."""
        return int(getattr(self, self.length))

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Keys that neither the family nor the common tools write."""
        return tuple(sorted(k for k in self.model_extra or {} if k not in self.inert and not k.startswith("_")))


class LLaDAConfig(CheckpointConfig):
    """LLaDA (GSAI-ML/LLaDA-8B-Instruct, GSAI-ML/LLaDA-1.5): Llama blocks without causality, RoPE in float32."""

    inert: ClassVar[frozenset[str]] = CheckpointConfig.inert | {
        *("alibi_bias_max", "attention_layer_norm_with_affine", "flash_attention", "init_cutoff_factor"),
        *("init_device", "init_fn", "init_std", "mlp_ratio", "precision"),
    }
    sizes: ClassVar[Mapping[str, str]] = {
        **{"vocab": "vocab_size", "width": "d_model", "layers": "n_layers"},
        **{"heads": "n_heads", "kv_heads": "n_kv_heads", "mlp": "mlp_hidden_size"},
    }
    length: ClassVar[str] = "max_sequence_length"
    qkv_bias: ClassVar[bool] = False
    rope_float32: ClassVar[bool] = True

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
        # The published sizes are equal; with another embedding, ids above the vocabulary would be decoded.
        same = self.embedding_size == self.vocab_size
        require(same, "embedding_size", self.embedding_size, f"vocab_size, {self.vocab_size}", "restore the file")
        return self


class DreamConfig(CheckpointConfig):
    """Dream (Dream-org/Dream-v0-Instruct-7B): Qwen2 blocks without causality, with biases of q, k and v."""

    # The size of the window means nothing, because `use_sliding_window` must be off.
    inert: ClassVar[frozenset[str]] = CheckpointConfig.inert | {"max_window_layers", "sliding_window"}
    sizes: ClassVar[Mapping[str, str]] = {
        **{"vocab": "vocab_size", "width": "hidden_size", "layers": "num_hidden_layers"},
        **{"heads": "num_attention_heads", "kv_heads": "num_key_value_heads", "mlp": "intermediate_size"},
    }
    length: ClassVar[str] = "max_position_embeddings"
    qkv_bias: ClassVar[bool] = True
    rope_float32: ClassVar[bool] = False

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


@dataclass(frozen=True)
class TensorNames:
    """Names of a family's tensors. Those of a layer follow `layer`, where {} stands for the number of the layer."""

    embed: str
    norm: str
    head: str
    layer: str
    attn_norm: str
    q: str
    k: str
    v: str
    out: str
    mlp_norm: str
    gate: str
    up: str
    down: str

    def parts(self, spec: TransformerSpec) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
        """Published tensors, with their shapes, that each of our parameters is stacked from."""
        width, mlp = spec.width, spec.mlp
        table: dict[str, list[tuple[str, tuple[int, ...]]]] = {
            "embed.weight": [(f"{self.embed}.weight", (spec.vocab, width))],
            "norm.weight": [(f"{self.norm}.weight", (width,))],
            "head.weight": [(f"{self.head}.weight", (spec.vocab, width))],
        }
        for n in range(spec.layers):
            ours, theirs = f"layers.{n}", self.layer.format(n)
            qkv = list(zip((self.q, self.k, self.v), spec.qkv, strict=True))
            table |= {
                f"{ours}.attn_norm.weight": [(f"{theirs}.{self.attn_norm}.weight", (width,))],
                f"{ours}.qkv.weight": [(f"{theirs}.{name}.weight", (rows, width)) for name, rows in qkv],
                f"{ours}.out.weight": [(f"{theirs}.{self.out}.weight", (width, width))],
                f"{ours}.mlp_norm.weight": [(f"{theirs}.{self.mlp_norm}.weight", (width,))],
                f"{ours}.gate_up.weight": [(f"{theirs}.{name}.weight", (mlp, width)) for name in (self.gate, self.up)],
                f"{ours}.down.weight": [(f"{theirs}.{self.down}.weight", (width, mlp))],
            }
            if spec.qkv_bias:
                table[f"{ours}.qkv.bias"] = [(f"{theirs}.{name}.bias", (rows,)) for name, rows in qkv]
        return table


@dataclass(frozen=True)
class Family:
    """Differences between families of checkpoints that are not numbers in `config.json`."""

    name: str
    model_type: str
    """The name in `config.json`."""
    architectures: tuple[str, ...]
    """Published classes that our network computes. Others share a model type: that of LLaDA-MoE is llada, too."""
    config: type[CheckpointConfig]
    names: TensorNames
    shift: int
    """Number of slots before a position at which its logits are read; 1 for models that were made of a causal one."""
    usable: int | None
    """Shorter limit of the length that the authors state; None without one."""
    mask: str
    """Text of the mask token. Under the id of another token, decoding would write nonsense without an error."""
    ends: tuple[str, ...]
    """Tokens that end an answer, besides the end of text in `config.json`."""
    policy: str
    """Method that the authors decode with, the reference policy of the model."""


LLADA = Family(
    name="llada",
    model_type="llada",
    architectures=("LLaDAModelLM", "LLaDAModel"),
    config=LLaDAConfig,
    names=TensorNames(
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
        # SiLU acts on ff_proj. The MLP's output is called as the head is, one level deeper.
        gate="ff_proj",
        up="up_proj",
        down="ff_out",
    ),
    shift=0,
    usable=None,
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
    ),
    shift=1,
    # The file says 131,072 positions; the authors say that the model was trained for 2,048.
    usable=2048,
    mask="<|mask|>",
    ends=("<|im_end|>",),
    policy="dream",
)
FAMILIES: dict[str, Family] = {family.model_type: family for family in (LLADA, DREAM)}
"""Families by the `model_type` of their `config.json`."""

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
"""Patterns of keys that change the forward pass when they are set, and what computing them would need."""
_OF_OTHERS = NOT_COMPUTED | {"block_size": "block-causal attention", "bd_size": "block-causal attention"}
"""In other families the size of a block is one of attention. In ours it can only be one of decoding."""


def find_family(folder: Path) -> Family | None:
    """Find the family of a checkpoint folder; None for a masked language model of transformers."""
    return _find_family(folder / "config.json", read_json(folder / "config.json"))


def read_config(folder: Path) -> tuple[Family, CheckpointConfig]:
    """Read and check the `config.json` of a checkpoint folder; return its family and its keys."""
    path = folder / "config.json"
    values = read_json(path)
    family = _find_family(path, values)
    if family is None:
        raise CheckpointError(
            f"{path} describes a masked language model of transformers ({values.get('model_type')!r}); allowed: "
            f"{', '.join(FAMILIES)}; load it as masked-lm"
        )
    # Keys of the family itself are checked by its model.
    strangers = {key: value for key, value in values.items() if key not in family.config.model_fields}
    for key, feature in _not_computed(strangers, NOT_COMPUTED).items():
        raise CheckpointError(
            f"{key!r} in {path} is {format_value(values[key], 200)}; allowed: null, false, 0 or empty; this network "
            f"would need {feature}, which unmask does not compute"
        )
    try:
        config = family.config.from_table(values, path.name)
        config.spec  # noqa: B018  refuses numbers that do not fit each other
    except ConfigError as error:
        raise CheckpointError(
            f"{path} describes no network: {error}; check that the file is the published one"
        ) from error
    return family, config


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object in which no key is given twice; errors name the file."""
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


def _find_family(path: Path, values: dict[str, Any]) -> Family | None:
    architectures = values.get("architectures") or []
    names = [str(name) for name in architectures] if isinstance(architectures, list) else [str(architectures)]
    model_type = values.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is not None and (not names or set(names) & set(family.architectures)):
        return family
    if family is None and any("MaskedLM" in name for name in names):
        return None
    features = _not_computed(values, _OF_OTHERS)
    lacking = "; ".join(f"{feature} ({key})" for key, feature in features.items())
    supported = ", ".join(name for family in FAMILIES.values() for name in family.architectures)
    raise CheckpointError(
        f"'model_type' in {path} is {model_type!r} and 'architectures' is {names!r}; allowed: {', '.join(FAMILIES)} "
        f"with one of the architectures {supported}, or a masked LM of transformers (masked-lm); this network would "
        f"need {lacking or 'an entry in unmask.models.checkpoints.FAMILIES, or a Denoiser (docs/extending.md)'}"
    )


def _not_computed(values: dict[str, Any], table: dict[str, str]) -> dict[str, str]:
    """Keys that are set and match a pattern of the table, each with what computing it would need."""
    return {
        key: feature
        for key, value in values.items()
        for pattern, feature in table.items()
        if fnmatchcase(key, pattern) and not key.startswith("_") and value not in (None, False, "", [], {})
    }
