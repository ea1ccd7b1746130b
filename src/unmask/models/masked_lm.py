"""`masked-lm`: any Hugging Face masked language model (BERT, RoBERTa, ALBERT, ModernBERT, ESM, ...) as a denoiser.

A masked language model predicts every masked slot from all others, which is all a decoder asks of its model. What
it lacks is an end: it was trained on windows of text, so an answer is as long as its blanks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.base.errors import CheckpointError, ConfigError, DenoiserError, require
from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary
from unmask.models.masked_lm_codec import MaskedLMCodec

BUCKET = 32
"""Canvases are padded to a multiple of this many slots, because another shape rounds differently."""
PACK = 64
"""Rows of the head come in multiples of this, for the same reason."""


class _Architecture(NamedTuple):
    """What the adapter has to know about an architecture to run its head on the wanted slots only."""

    head: tuple[str, ...]
    """Parts of the model that turn hidden states into logits, in order."""
    after_pad: bool = False
    """Positions are counted from pad_token_id + 1, over tokens that are not padding."""


_ARCHITECTURES = {
    "albert": _Architecture(("predictions",)),
    "bert": _Architecture(("cls",)),
    "camembert": _Architecture(("lm_head",), after_pad=True),
    "distilbert": _Architecture(("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector")),
    "electra": _Architecture(("generator_predictions", "generator_lm_head")),
    "esm": _Architecture(("lm_head",), after_pad=True),
    "modernbert": _Architecture(("head", "decoder")),
    "roberta": _Architecture(("lm_head",), after_pad=True),
    "xlm-roberta": _Architecture(("lm_head",), after_pad=True),
}
"""By config.model_type. Others run whole, and the wanted slots are taken from their logits: slower, as right."""

OLDEST = (5, 3)
"""Of transformers. In earlier ones the padding of an ESM canvas changes its logits (their issue 44162)."""

_NEVER_READ = ("contact_head.", "pooler.", "seq_relationship.", "sop_classifier.", "position_ids", "inv_freq")
"""Weights that a checkpoint may lack or have in excess, because no logit depends on them."""

LONGEST_REASON = 300
"""Letters of a message of transformers that are passed on."""


@dataclass(frozen=True)
class MaskedLM:
    """One forward pass of a transformers masked LM over a padded batch."""

    model: Any
    """The transformers module, in evaluation mode."""
    vocabulary: Vocabulary
    max_positions: int | None
    """Slots of the longest canvas, opening and closing tokens included; None for no limit."""
    readout_layers: tuple[int, ...] = ()
    """Layers whose attention is averaged over all heads; none unless the model runs eager attention."""

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self._check(inputs, needs)
        architecture = _ARCHITECTURES.get(self.model.config.model_type)
        output = self._run(inputs, needs, architecture)
        hidden_BNH = output.hidden_states[-1] if architecture is None else output.last_hidden_state
        index_R = self._index(inputs, hidden_BNH.shape[1])
        hidden_RH = hidden_BNH.flatten(0, 1)[index_R]
        logits_RV = (
            output.logits.flatten(0, 1)[index_R] if architecture is None else self._head(hidden_RH, architecture)
        )
        return ModelOutput(
            logits_RV,
            inputs.wanted_BN,
            attention_BNN=self._attention(output.attentions, inputs) if needs.attention else None,
            hidden_RH=hidden_RH if needs.hidden else None,
        )

    def _run(self, inputs: ModelInput, needs: Needs, architecture: _Architecture | None) -> Any:
        """The layers alone where the head is known, else the whole model."""
        extra = self._slots(inputs.tokens_BN.shape[1]) - inputs.tokens_BN.shape[1]
        valid_BN = F.pad(inputs.valid_BN, (0, extra))
        tokens_BN = F.pad(inputs.tokens_BN, (0, extra))
        options: dict[str, Any] = {
            # Families that are not in the table tell padding by its token.
            "input_ids": torch.where(valid_BN, tokens_BN, self.model.config.pad_token_id or 0),
            "attention_mask": valid_BN.long(),
            "output_attentions": needs.attention,
        }
        if architecture is None:
            return self.model(**options, output_hidden_states=True)
        first = _first_position(self.model.config)
        if first:
            # Said, not left to the model: it would not count a padding token that was proposed as an answer.
            position_N = torch.arange(first, first + tokens_BN.shape[1], device=tokens_BN.device)
            options["position_ids"] = position_N.expand_as(tokens_BN)
        return self.model.base_model(**options)

    def _slots(self, slots: int) -> int:
        """The padded length: at least one slot is padding where the model's length allows it.

        Without any padding in the batch transformers drops the mask, and attention runs another kernel: a row's bits
        would depend on its neighbours' lengths.
        """
        padded = (slots // BUCKET + 1) * BUCKET
        return padded if self.max_positions is None else min(padded, self.max_positions)

    def _index(self, inputs: ModelInput, slots: int) -> Tensor:
        """Flat padded slot of each wanted one."""
        wanted_BN = F.pad(inputs.wanted_BN, (0, slots - inputs.wanted_BN.shape[1]))
        return wanted_BN.flatten().nonzero().squeeze(-1)

    def _head(self, hidden_RH: Tensor, architecture: _Architecture) -> Tensor:
        rows = len(hidden_RH)
        out = F.pad(hidden_RH, (0, 0, 0, -rows % PACK))
        for name in architecture.head:
            out = getattr(self.model, name)(out)
        return out[:rows]

    def _attention(self, layers: Sequence[Tensor], inputs: ModelInput) -> Tensor:
        """Mean over layers and heads, zero at padding; bfloat16 rows are brought back to a sum of one."""
        slots = inputs.tokens_BN.shape[1]
        mean_BNN = torch.stack([layers[n].float().mean(1) for n in self.readout_layers]).mean(0)
        mean_BNN = mean_BNN[:, :slots, :slots] * (inputs.valid_BN[:, :, None] & inputs.valid_BN[:, None, :])
        return mean_BNN / mean_BNN.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)

    def _check(self, inputs: ModelInput, needs: Needs) -> None:
        slots, size = inputs.tokens_BN.shape[1], self.vocabulary.size
        if needs.attention and not self.readout_layers:
            raise DenoiserError(
                "the method reads attention, but the model was loaded without; allowed: eager attention; load it with "
                "attention=True"
            )
        if inputs.attend_BNN is not None:
            raise DenoiserError(
                "the view says who attends to whom (attend_BNN); allowed: None, every slot reads every valid one; "
                "choose a method without shadow slots (wino has them)"
            )
        if self.max_positions is not None and slots > self.max_positions:
            raise DenoiserError(
                f"a canvas has {slots} slots; allowed: at most {self.max_positions}, the model's window; shorten "
                "prompt plus answer"
            )
        odd_BN = inputs.position_BN != torch.arange(slots, device=inputs.position_BN.device)
        strange_BN = inputs.valid_BN & ((inputs.tokens_BN < 0) | (inputs.tokens_BN >= size))
        moved, strange = torch.stack((odd_BN.any(), strange_BN.any())).tolist()
        if moved:
            raise DenoiserError(
                f"the view moves slots to other positions; allowed: positions 0 to {slots - 1} in order; choose a "
                "method that reads the canvas as it is"
            )
        if strange:
            raise DenoiserError(
                f"a canvas holds token {int(inputs.tokens_BN[strange_BN][0])}; allowed: 0 to {size - 1}; encode the "
                "text with this model's tokenizer"
            )


class LoadedMaskedLM(NamedTuple):
    """What `load_masked_lm` returns."""

    denoiser: MaskedLM
    codec: MaskedLMCodec


def load_masked_lm(
    folder: Path | str,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    attention: bool = False,
    readout_layers: Sequence[int] | None = None,
    tokenizer: Any = None,
) -> LoadedMaskedLM:
    """A masked LM and its codec from a local checkpoint folder with safetensors weights.

    Nothing is downloaded, no code in the folder is run, and pickles are not read.

    `attention=True` runs eager attention, which methods that read it need; they get the mean over all heads of
    `readout_layers`, by default the upper half. `tokenizer` stands in for the folder's own.
    """
    transformers = _transformers()
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder; allowed: a downloaded checkpoint; check the path")
    ours = {"local_files_only": True, "trust_remote_code": False}
    with _quiet(transformers), _named(folder, "config.json"):
        transformers.AutoConfig.from_pretrained(folder, **ours)
    with _quiet(transformers), _named(folder, "tokenizer"):
        if tokenizer is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **ours)
        codec = MaskedLMCodec(tokenizer)
    with _quiet(transformers), _named(folder, "model"):
        _check_files(folder)
        eager = {"attn_implementation": "eager"} if attention else {}
        model, info = transformers.AutoModelForMaskedLM.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            # Refused below, by name: transformers would only point at its log.
            ignore_mismatched_sizes=True,
            **eager,
            **ours,
        )
    _check_weights(folder, info)
    _check_model(folder, model, codec)
    denoiser = MaskedLM(
        model=model.to(device).eval().requires_grad_(False),
        vocabulary=Vocabulary(model.config.vocab_size, codec.mask_id, codec.eos_ids),
        max_positions=_max_positions(model.config, tokenizer),
        readout_layers=_readout(attention, readout_layers, model.config.num_hidden_layers),
    )
    _check_padding(folder, denoiser, codec)
    return LoadedMaskedLM(denoiser, codec)


def _transformers() -> Any:
    remedy = f"allowed: version {OLDEST[0]}.{OLDEST[1]} or newer; pip install 'unmask[hf]'"
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(f"transformers is not installed; {remedy}") from error
    version = transformers.__version__
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise ConfigError(f"transformers is version {version}; {remedy}")
    return transformers


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bars and no warnings while loading: what matters is raised."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


@contextmanager
def _named(folder: Path, part: str) -> Iterator[None]:
    """Whatever a stranger's files make transformers raise, as an error that names them."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    except Exception as error:
        raise CheckpointError(
            f"{folder} cannot be loaded, its {part} is wrong ({_reason(error)}); allowed: config.json, weights and "
            "tokenizer of a masked language model that transformers knows; check that the folder is complete"
        ) from error


def _reason(error: Exception) -> str:
    """The first paragraph of a message, on one line."""
    text = " ".join(str(error).strip().partition("\n\n")[0].split()) or type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ..."


def _check_files(folder: Path) -> None:
    if (folder / "config.json").is_file() and not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            "no safetensors weights; allowed: model.safetensors, pickles (.bin) are not read; convert them with "
            "save_pretrained of transformers, or choose another checkpoint"
        )


def _check_weights(folder: Path, info: Mapping[str, Any]) -> None:
    """Every weight has its place and every place its weight; `info` is transformers' loading info."""
    lacking, surplus = _read(info["missing_keys"]), _read(info["unexpected_keys"])
    if lacking:
        raise CheckpointError(
            f"{folder} lacks the weights {_listed(lacking)}; allowed: a checkpoint saved with its masked-LM head; "
            "choose one that was pretrained as a masked language model, or its generator (ELECTRA)"
        )
    # Each is a name with its shape in the file and in the model.
    other = sorted(f"{name} {list(stored)} for {list(wanted)}" for name, stored, wanted in info["mismatched_keys"])
    if other:
        raise CheckpointError(
            f"{folder} has weights of other shapes than its config.json says: {_listed(other)}; allowed: weights and "
            "config.json of one model; restore config.json"
        )
    if surplus:
        raise CheckpointError(
            f"{folder} has weights for which its config.json has no place: {_listed(surplus)}; allowed: weights and "
            "config.json of one model; restore config.json (num_hidden_layers?), or remove what is not of the model"
        )


def _read(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not any(part in name for part in _NEVER_READ))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _check_model(folder: Path, model: Any, codec: MaskedLMCodec) -> None:
    config = model.config
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        raise CheckpointError(
            f"{folder} holds a {config.model_type} with a decoder; allowed: encoders, where each slot reads all "
            "others; choose a masked language model"
        )
    top = max(codec.tokenizer.get_vocab().values())
    if top >= config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer's ids reach {top}; allowed: up to {config.vocab_size - 1}, the model's "
            "vocabulary; model and tokenizer do not belong together"
        )


@torch.inference_mode()
def _check_padding(folder: Path, denoiser: MaskedLM, codec: MaskedLMCodec) -> None:
    """Refuse a model whose predictions depend on the padding behind the text, as those of FNet do.

    Rows of a batch are padded, so such a model would answer for other text than its row holds. No configuration says
    so, hence two passes over a few tokens, with padding and without.
    """
    model, special = denoiser.model, {codec.mask_id, *codec.tokenizer.all_special_ids}
    ordinary = [token for token in sorted(codec.tokenizer.get_vocab().values()) if token not in special]
    tokens_1N = torch.tensor([[codec.mask_id, *ordinary[:6], codec.mask_id]], device=denoiser.device)
    length, padded = tokens_1N.shape[1], denoiser._slots(tokens_1N.shape[1])
    padded_1N = F.pad(tokens_1N, (0, padded - length), value=model.config.pad_token_id or 0)
    valid_1N = torch.arange(padded, device=denoiser.device)[None] < length
    alone_NV = model(input_ids=tokens_1N, attention_mask=torch.ones_like(tokens_1N)).logits[0].float()
    beside_NV = model(input_ids=padded_1N, attention_mask=valid_1N.long()).logits[0, :length].float()
    # Rounding moves logits by less than a thousandth of their spread in float32, by a hundredth in half precision.
    most = 0.01 if model.dtype == torch.float32 else 0.1
    if not bool((alone_NV - beside_NV).abs().max() <= most * (alone_NV.max() - alone_NV.min())):
        raise CheckpointError(
            f"{folder} holds a {model.config.model_type} whose predictions change with the padding behind a text; "
            "allowed: models that leave padding out, as attention with a mask does; choose another model"
        )


def _first_position(config: Any) -> int:
    """The number of the first position, where the architecture counts from its padding token on."""
    architecture = _ARCHITECTURES.get(config.model_type)
    rotary = getattr(config, "position_embedding_type", "absolute") == "rotary"
    if architecture is None or not architecture.after_pad or rotary:
        return 0
    return int(config.pad_token_id) + 1


def _max_positions(config: Any, tokenizer: Any) -> int | None:
    """The shorter of what the model has positions for and what the tokenizer says it was trained on."""
    limits = [int(tokenizer.model_max_length)]
    if getattr(config, "max_position_embeddings", None) is not None:
        limits.append(config.max_position_embeddings - _first_position(config))
    # Tokenizers without a limit say 10**30.
    return min(limits) if min(limits) < 10**9 else None


def _readout(attention: bool, layers: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(count // 2, count)) if attention else ()
    require(attention, "readout", layers, "None without attention", "load with attention=True")
    ok = len(layers) > 0 and len(set(layers)) == len(layers) and all(0 <= n < count for n in layers)
    require(ok, "readout", layers, f"different layers out of 0 to {count - 1}", "name at least one")
    return tuple(layers)
