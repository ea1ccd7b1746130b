"""`config.json` as one pydantic model per family: every key that changes a forward pass is used, checked or refused.

Keys that must hold one value, because our network has no code for another, are `Literal`. Nothing that a prediction
depends on falls back to a default of the published classes: those (tied weights, other ids) are wrong for the
published weights. A new family is a `Family` in `FAMILIES`.
"""

import json
from ast import literal_eval
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from unmask.base.errors import CheckpointError, ConfigError, format_value
from unmask.base.json_files import parse_json
from unmask.models.transformer import TransformerSpec

_LARGEST = 2**31 - 1
Size = Annotated[int, Field(ge=1, le=_LARGEST, description=f"a whole number from 1 to {_LARGEST}")]
TokenId = Annotated[int, Field(ge=0, le=_LARGEST, description=f"a whole number from 0 to {_LARGEST}")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, description="a number above 0")]
NoDropout = Annotated[float, Field(ge=0, le=0, description="0")]


class RopeParameters(BaseModel):
    """Plain rotations, as newer versions of transformers write them. Scaled rotations have other keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    rope_type: Literal["default"] = "default"
    type: Literal["default"] = "default"
    rope_theta: Positive | None = None


PlainRotation = Annotated[RopeParameters | None, Field(strict=False, description='null or {"rope_type": "default"}')]


_INERT = frozenset(
    [
        *("architectures", "auto_map", "base_model_prefix", "bos_token_id", "chunk_size_feed_forward", "dtype"),
        *("finetuning_task", "gradient_checkpointing", "id2label", "initializer_range", "label2id", "max_length"),
        *("name_or_path", "num_labels", "output_attentions", "output_hidden_states", "pad_token_id", "problem_type"),
        *("return_dict", "sep_token_id", "task_specific_params", "temperature", "tokenizer_class", "top_k", "top_p"),
        *("torch_dtype", "torchscript", "transformers_version", "transformers_weights", "unsloth_fixed"),
        *("unsloth_version", "use_bfloat16", "use_cache"),
    ]
)
_SIZES = ("vocab", "width", "layers", "heads", "kv_heads", "mlp", "max_length")


def _spelling(*keys: str) -> ConfigDict:
    """How a family's file calls the sizes of the network and of its longest sequence."""
    key_of = dict(zip(_SIZES, keys, strict=True))
    return ConfigDict(alias_generator=lambda field: key_of.get(field, field))


class CheckpointConfig(BaseModel):
    """Keys of every family, under our names. Subclasses say how their file spells them, and add their own."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", protected_namespaces=())

    inert: ClassVar[frozenset[str]] = _INERT
    """Keys that change no prediction: training, bookkeeping of tools, and how their program decodes."""
    qkv_bias: ClassVar[bool]
    rope_float32: ClassVar[bool]

    model_type: str
    vocab: Size
    width: Size
    layers: Size
    heads: Size
    kv_heads: Size
    mlp: Size
    max_length: Size
    mask_token_id: TokenId
    eos_token_id: TokenId
    rms_norm_eps: Positive
    rope_theta: Positive = 0.0
    """0 where the file says it in `rope_parameters` only."""
    rope_scaling: PlainRotation = None
    rope_parameters: PlainRotation = None

    @property
    def theta(self) -> float:
        """Base of the rotary frequencies, wherever the file says it; 0 if it does not."""
        inner = [rotation.rope_theta for rotation in (self.rope_scaling, self.rope_parameters) if rotation is not None]
        return next((theta for theta in (self.rope_theta, *inner) if theta), 0.0)

    @property
    def spec(self) -> TransformerSpec:
        """The network that this file describes."""
        return TransformerSpec(
            vocab=self.vocab,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            mlp=self.mlp,
            theta=self.theta,
            eps=self.rms_norm_eps,
            qkv_bias=self.qkv_bias,
            rope_float32=self.rope_float32,
        )

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Keys that neither the family nor the common tools write."""
        known = self.inert | self._restated.keys() | {"layer_types"}
        return tuple(sorted(k for k in self.model_extra or {} if k not in known and not k.startswith("_")))

    @property
    def _restated(self) -> dict[str, object]:
        """What a key must say that repeats another one, often in the words of other programs."""
        return {
            "embedding_size": self.vocab,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.mlp,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.width // self.heads,
        }

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not self.theta:
            raise PydanticCustomError("missing", "rope_theta", {"key": "rope_theta"})
        for key in ("rope_scaling", "rope_parameters"):
            rotation = getattr(self, key)
            if rotation is not None and rotation.rope_theta not in (None, self.theta):
                raise _contradiction(key, f"rope_theta {self.theta:g}, as beside it")
        stated = {**(self.model_extra or {}), **self.__dict__}
        for key, expected in self._restated.items():
            value = stated.get(key)
            if value is not None and not (value == expected and type(value) is type(expected)):
                raise _contradiction(key, json.dumps(expected))
        # Not made as a list to compare with: a file may claim two billion layers.
        kinds = stated.get("layer_types")
        if kinds is not None and not (isinstance(kinds, list) and kinds == ["full_attention"] * len(kinds)):
            raise _contradiction("layer_types", '"full_attention" for every layer')
        return self


def _contradiction(key: str, allowed: str) -> PydanticCustomError:
    hint = "the file contradicts itself; restore the published one"
    return PydanticCustomError("contradiction", "{key}", {"key": key, "allowed": allowed, "hint": hint})


class LLaDAConfig(CheckpointConfig):
    """LLaDA (GSAI-ML/LLaDA-8B-Instruct, GSAI-ML/LLaDA-1.5): Llama blocks without causality, RoPE in float32."""

    model_config = _spelling(
        "vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "max_sequence_length"
    )
    inert: ClassVar[frozenset[str]] = _INERT | {
        *("alibi_bias_max", "attention_layer_norm_with_affine", "flash_attention", "init_cutoff_factor"),
        *("init_device", "init_fn", "init_std", "mlp_ratio", "precision"),
    }
    qkv_bias: ClassVar[bool] = False
    rope_float32: ClassVar[bool] = True

    embedding_size: Size
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
    attention_dropout: NoDropout = 0.0
    embedding_dropout: NoDropout = 0.0
    residual_dropout: NoDropout = 0.0


class DreamConfig(CheckpointConfig):
    """Dream (Dream-org/Dream-v0-Instruct-7B): Qwen2 blocks without causality, with biases of q, k and v."""

    model_config = _spelling(
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *("intermediate_size", "max_position_embeddings"),
    )
    # The window's size says nothing, because `use_sliding_window` must be off.
    inert: ClassVar[frozenset[str]] = _INERT | {"max_window_layers", "sliding_window"}
    qkv_bias: ClassVar[bool] = True
    rope_float32: ClassVar[bool] = False

    hidden_act: Literal["silu"]
    tie_word_embeddings: Literal[False]
    use_sliding_window: Literal[False] = False
    use_mrope: Literal[False] = False
    attention_dropout: NoDropout = 0.0


@dataclass(frozen=True)
class TensorNames:
    """How a family spells its tensors. Those of a layer follow `layer`, whose {} is the layer's number."""

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
        """For each of our parameters, the published tensors it is stacked from, with their shapes."""
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
    """Everything that differs between families of checkpoints and is not a number in `config.json`."""

    name: str
    """Our name."""
    model_type: str
    """The name in `config.json`."""
    architectures: tuple[str, ...]
    """Published classes that our network computes. Other networks share a model type: LLaDA-MoE says llada, too."""
    config: type[CheckpointConfig]
    names: TensorNames
    shift: int
    """How many slots before a position its logits are read: 0, or 1 for models trained from a causal one."""
    usable: int | None
    """A shorter limit of the length, stated by the authors."""
    mask: str
    """Text of the mask token. With the id of another token, decoding would write nonsense without an error."""
    ends: tuple[str, ...]
    """Tokens that end an answer, besides the end of text in `config.json`."""
    policy: str
    """The method that the authors decode with: the reference of this model."""


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
    "*qk_norm*": "norms of queries and keys",
    "*qk_layernorm*": "norms of queries and keys",
    "*vision*": "an image encoder",
    "yarn_*": "scaled rotations",
    "quantization_config": "quantised weights",
    "pruned_heads": "pruned attention heads",
    "is_decoder": "causal attention",
    "*cross_attention*": "cross-attention",
    "is_encoder_decoder": "an encoder beside the decoder",
    "tie_encoder_decoder": "an encoder beside the decoder",
    "tie_word_embeddings": "a head tied to the embedding",
}
"""Patterns of keys that change the forward pass when they are set, and what it would take to compute them."""
_OF_OTHERS = NOT_COMPUTED | {"block_size": "block-causal attention", "bd_size": "block-causal attention"}
"""In families that are not ours, sizes of blocks are sizes of attention. In ours they can only be about decoding."""


def find_family(folder: Path) -> Family | None:
    """Family of a checkpoint folder; None for a masked language model of transformers."""
    return _find_family(folder / "config.json", read_json(folder / "config.json"))


def read_config(folder: Path) -> tuple[Family, CheckpointConfig]:
    """Checked `config.json` of a checkpoint folder, and the family it belongs to."""
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
        config = family.config.model_validate(values)
        config.spec  # noqa: B018  refuses sizes that do not fit each other
    except ValidationError as error:
        raise _explain(path, values, family.config, error) from error
    except ConfigError as error:
        raise CheckpointError(
            f"{path} describes no network: {error}; check that the file is the published one"
        ) from error
    return family, config


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in which no key is given twice, or an error that names the file."""
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
    """Text of a file of a checkpoint folder, or an error that names it."""
    # A pipe would wait for somebody to write into it.
    if not path.is_file():
        what = "is no ordinary file" if path.exists() else "does not exist"
        raise CheckpointError(
            f"{path} {what}; allowed: a checkpoint folder with a {path.name}; check the path, or download again"
        )
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); allowed: a text file that you may read; check its permissions, or "
            "download it again"
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
    """Keys of a file that are set and match a pattern of the table, each with what it would take."""
    return {
        key: feature
        for key, value in values.items()
        for pattern, feature in table.items()
        if fnmatchcase(key, pattern) and not key.startswith("_") and value not in (None, False, "", [], {})
    }


def _explain(
    path: Path, values: dict[str, Any], config: type[CheckpointConfig], error: ValidationError
) -> CheckpointError:
    """The first thing that pydantic found, in our words."""
    first = error.errors(include_url=False)[0]
    about: dict[str, Any] = first.get("ctx", {})
    key = str(about["key"] if "key" in about else first["loc"][0])
    if first["type"] == "missing":
        return CheckpointError(
            f"{path} has no key {key!r}; allowed: every key of the published file; defaults are not guessed, restore "
            "the key"
        )
    fields = {field.alias or name: field for name, field in config.model_fields.items()}
    if "allowed" in about:
        allowed, hint = about["allowed"], about["hint"]
    elif described := fields[key].description:
        allowed, hint = described, "check that the file is the published one"
    else:
        allowed = json.dumps(literal_eval(about["expected"]))
        hint = "this network has no code for another value, and guessing would be wrong"
    text = json.dumps(values.get(key))
    text = text if len(text) <= 200 else f"{text[:200]} ..."
    return CheckpointError(f"{key!r} in {path} is {text}; allowed: {allowed}; {hint}")
