"""Any masked language model of transformers (BERT, RoBERTa, ALBERT, ModernBERT, ESM, ...) as a denoiser, and its codec.

A masked language model predicts every masked slot from all others, which is all that a decoder asks of its model. It
has no end of its own: it was trained on windows of text, so an answer is as long as its blanks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unmask.base.errors import CheckpointError, ConfigError, DenoiserError, require
from unmask.core import ModelInput, ModelOutput, Needs, Vocabulary
from unmask.models.codec import MASK_WORD, Prompt, cut_at_blanks
from unmask.models.network import BUCKET, PACK

OLDEST_TRANSFORMERS = (5, 3)
"""In earlier versions the padding of an ESM canvas changes its logits (issue 44162 of transformers)."""
UNREAD_WEIGHTS = ("contact_head.", "pooler.", "seq_relationship.", "sop_classifier.", "position_ids", "inv_freq")
"""Weights that may be missing or surplus in a checkpoint, because no logit depends on them."""
HEADS = {
    "albert": ("predictions",),
    "bert": ("cls",),
    "camembert": ("lm_head",),
    "distilbert": ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    "electra": ("generator_predictions", "generator_lm_head"),
    "esm": ("lm_head",),
    "modernbert": ("head", "decoder"),
    "roberta": ("lm_head",),
    "xlm-roberta": ("lm_head",),
}
"""Modules that turn hidden states into logits, in order, by `model_type`: they run on the wanted slots alone.

Other models run whole, and the wanted slots are taken from their logits: the same numbers, but slower.
"""
COUNTS_AFTER_PADDING = ("camembert", "esm", "roberta", "xlm-roberta")
"""Architectures that count positions from pad_token_id + 1, over tokens that are not padding."""


@dataclass(frozen=True)
class MaskedLMCodec:
    """Codec around a tokenizer of transformers.

    A canvas is framed as the tokenizer frames a text, for example [CLS] ... [SEP]. A prompt gets only the opening; the
    closing goes behind the answer, because these models seldom write it themselves.
    """

    tokenizer: Any
    """Any `PreTrainedTokenizerBase` with a mask token."""

    @property
    def mask(self) -> str:
        return str(self.tokenizer.mask_token)

    @property
    def mask_id(self) -> int:
        """Token of a masked position."""
        return int(self.tokenizer.mask_token_id)

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The token that closes a text: [SEP], </s> or <eos>."""
        names = self.tokenizer.special_tokens_map
        closing = names.get("sep_token", names.get("eos_token"))
        return () if closing is None else (int(self.tokenizer.convert_tokens_to_ids(str(closing))),)

    @cached_property
    def frame_tokens(self) -> tuple[list[int], list[int]]:
        """Tokens that the tokenizer puts before and after a text."""
        # Read off a text of one mask, which no tokenizer splits or merges with its neighbours.
        tokens = self._tokenize(self.mask, framed=True)
        at = tokens.index(self.mask_id)
        return tokens[:at], tokens[at + 1 :]

    @property
    def closing(self) -> tuple[int, ...]:
        return tuple(self.frame_tokens[1])

    def encode(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str):
            raise ConfigError(
                f"prompt is {prompt!r}, a conversation; allowed: one text; a masked language model has no chat format, "
                "pass a string"
            )
        tokens = self._tokenize(prompt)
        if self.mask_id in tokens:
            raise ConfigError(
                f"prompt {prompt!r} holds a blank; allowed: text without {self.mask} or {MASK_WORD}; use infill to "
                "fill blanks"
            )
        return [*self.frame_tokens[0], *tokens]

    def canvas(self, text: str) -> list[int]:
        opening, closing = self.frame_tokens
        return [*opening, *self._tokenize(text), *closing]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        options = {"skip_special_tokens": skip_special_tokens, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(tokens), **options))

    def answer(self, tokens: Sequence[int]) -> str:
        ends = [at for at, token in enumerate(tokens) if token in self.eos_ids]
        return self.decode(tokens[: ends[0]] if ends else tokens, skip_special_tokens=True)

    def text(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens, skip_special_tokens=True)

    def _tokenize(self, text: str, framed: bool = False) -> list[int]:
        # One text, not part by part: only the tokenizer knows whether a space before a word or a blank belongs to it.
        parts = cut_at_blanks(text, self.mask)
        plain = "".join(part if isinstance(part, str) else self.mask * part for part in parts)
        tokens: list[int] = self.tokenizer(plain, add_special_tokens=framed, verbose=False)["input_ids"]
        unknown = self.tokenizer.unk_token_id
        if not framed and unknown in tokens:
            # Tokenizers in plain Python do not say where a token stands in the text.
            if self.tokenizer.is_fast:
                encoded = self.tokenizer(plain, add_special_tokens=False, verbose=False, return_offsets_mapping=True)
                start, end = encoded["offset_mapping"][tokens.index(unknown)]
                plain = plain[start:end]
            raise ConfigError(
                f"the text holds {plain!r}, for which the model has no token; allowed: text of its vocabulary; write "
                "it otherwise, or load a model that knows it"
            )
        return tokens


@dataclass(frozen=True)
class MaskedLM:
    """A masked language model of transformers as a denoiser: one forward pass over a padded batch."""

    model: Any
    """The module of transformers, in evaluation mode."""
    vocabulary: Vocabulary
    max_positions: int | None
    """Most slots of a canvas, opening and closing tokens included; None for no limit."""
    readout_layers: tuple[int, ...] = ()
    """Layers whose attention is averaged over all heads; none unless the model runs eager attention."""

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @torch.inference_mode()
    def __call__(self, inputs: ModelInput, needs: Needs) -> ModelOutput:
        self._check_input(inputs, needs)
        config, slots = self.model.config, inputs.tokens_BN.shape[1]
        extra = self.padded_slots(slots) - slots
        valid_BN, tokens_BN = F.pad(inputs.valid_BN, (0, extra)), F.pad(inputs.tokens_BN, (0, extra))
        options: dict[str, Any] = {
            # Some architectures know padding by its token.
            "input_ids": torch.where(valid_BN, tokens_BN, config.pad_token_id or 0),
            "attention_mask": valid_BN.long(),
            "output_attentions": needs.attention,
        }
        if first := _first_position(config):
            # Not left to the model, which would not count a padding token that was sampled as part of an answer.
            position_N = torch.arange(first, first + tokens_BN.shape[1], device=tokens_BN.device)
            options["position_ids"] = position_N.expand_as(tokens_BN)
        # Wanted slots of all rows in one list, as the padded canvas numbers them.
        index_R = F.pad(inputs.wanted_BN, (0, extra)).flatten().nonzero().squeeze(-1)
        if config.model_type in HEADS:
            output = self.model.base_model(**options)
            hidden_RH = output.last_hidden_state.flatten(0, 1)[index_R]
            # The head runs on a multiple of PACK rows, because products of another shape round differently.
            logits_RV = F.pad(hidden_RH, (0, 0, 0, -len(hidden_RH) % PACK))
            for name in HEADS[config.model_type]:
                logits_RV = getattr(self.model, name)(logits_RV)
            logits_RV = logits_RV[: len(hidden_RH)]
        else:
            output = self.model(**options, output_hidden_states=True)
            hidden_RH = output.hidden_states[-1].flatten(0, 1)[index_R]
            logits_RV = output.logits.flatten(0, 1)[index_R]
        return ModelOutput(
            logits_RV,
            inputs.wanted_BN,
            attention_BNN=self._mean_attention(output.attentions, inputs) if needs.attention else None,
            hidden_RH=hidden_RH if needs.hidden else None,
        )

    def padded_slots(self, slots: int) -> int:
        """Return the length of a padded canvas: at least one slot of padding, if the model's window allows it.

        Without any padding in the batch transformers drops the mask, and attention runs another kernel: a row's bits
        would depend on the lengths of its neighbours.
        """
        padded = (slots // BUCKET + 1) * BUCKET
        return padded if self.max_positions is None else min(padded, self.max_positions)

    def _mean_attention(self, layers: Sequence[Tensor], inputs: ModelInput) -> Tensor:
        """Average the attention over the read-out layers and their heads; zero at padding, rows sum to one."""
        slots = inputs.tokens_BN.shape[1]
        mean_BNN = torch.stack([layers[n].float().mean(1) for n in self.readout_layers]).mean(0)
        mean_BNN = mean_BNN[:, :slots, :slots] * (inputs.valid_BN[:, :, None] & inputs.valid_BN[:, None, :])
        return mean_BNN / mean_BNN.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)

    def _check_input(self, inputs: ModelInput, needs: Needs) -> None:
        """Refuse inputs that a model of transformers cannot compute."""
        slots, size = inputs.tokens_BN.shape[1], self.vocabulary.size
        if needs.attention and not self.readout_layers:
            raise DenoiserError(
                "the method reads attention, but the model was loaded without; allowed: eager attention; load it with "
                "attention=True"
            )
        if inputs.attend_BNN is not None:
            raise DenoiserError(
                "the method says who attends to whom (attend_BNN); allowed: None, every slot reads every valid one; "
                "choose a method without shadow slots (wino has them)"
            )
        if self.max_positions is not None and slots > self.max_positions:
            raise DenoiserError(
                f"a canvas has {slots} slots; allowed: at most {self.max_positions}, the model's window; shorten "
                "prompt plus answer"
            )
        moved_BN = inputs.position_BN != torch.arange(slots, device=inputs.position_BN.device)
        strange_BN = inputs.valid_BN & ((inputs.tokens_BN < 0) | (inputs.tokens_BN >= size))
        # One read from the device for both.
        moved, strange = torch.stack((moved_BN.any(), strange_BN.any())).tolist()
        if moved:
            raise DenoiserError(
                f"the method moves slots to other positions; allowed: positions 0 to {slots - 1} in order; choose a "
                "method that reads the canvas as it is"
            )
        if strange:
            raise DenoiserError(
                f"a canvas holds token {int(inputs.tokens_BN[strange_BN][0])}; allowed: 0 to {size - 1}; encode the "
                "text with this model's tokenizer"
            )


class LoadedMaskedLM(NamedTuple):
    """A loaded masked language model with its codec."""

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
    """Load a masked language model and its codec from a local folder with safetensors weights.

    Nothing is downloaded, no code in the folder is run, and pickles are not read.

    `attention=True` runs eager attention, which methods that read it need; they get the mean over all heads of
    `readout_layers`, by default the upper half. `tokenizer` takes the place of the folder's own.
    """
    folder = Path(folder)
    model, tokenizer = _read_with_transformers(folder, dtype, attention, tokenizer)
    config = model.config
    if tokenizer.mask_token_id is None:
        raise CheckpointError(
            f"{folder}: the tokenizer has no mask token; allowed: the tokenizer of a masked language model; set its "
            "mask_token, or choose another checkpoint"
        )
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        raise CheckpointError(
            f"{folder} holds a {config.model_type} with a decoder; allowed: encoders, where each slot reads all "
            "others; choose a masked language model"
        )
    top = max(tokenizer.get_vocab().values())
    if top >= config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer's ids reach {top}; allowed: up to {config.vocab_size - 1}, the model's "
            "vocabulary; model and tokenizer do not belong together"
        )
    layers = config.num_hidden_layers
    if readout_layers is None:
        readout_layers = range(layers // 2, layers) if attention else ()
    else:
        require(attention, "readout", readout_layers, "None without attention", "load with attention=True")
        different = 0 < len(readout_layers) == len(set(readout_layers))
        ok = different and all(0 <= layer < layers for layer in readout_layers)
        require(ok, "readout", readout_layers, f"different layers out of 0 to {layers - 1}", "name at least one")
    limits = [int(tokenizer.model_max_length)]
    if getattr(config, "max_position_embeddings", None) is not None:
        limits.append(config.max_position_embeddings - _first_position(config))
    codec = MaskedLMCodec(tokenizer)
    denoiser = MaskedLM(
        model=model.to(device).eval().requires_grad_(False),
        vocabulary=Vocabulary(config.vocab_size, codec.mask_id, codec.eos_ids),
        # Tokenizers without a limit say 10**30.
        max_positions=min(limits) if min(limits) < 10**9 else None,
        readout_layers=tuple(readout_layers),
    )
    _check_padding(folder, denoiser, codec)
    return LoadedMaskedLM(denoiser, codec)


def _read_with_transformers(folder: Path, dtype: torch.dtype, attention: bool, tokenizer: Any) -> tuple[Any, Any]:
    """Load model and tokenizer with transformers, without its log messages; errors name the folder."""
    remedy = f"allowed: version {OLDEST_TRANSFORMERS[0]}.{OLDEST_TRANSFORMERS[1]} or newer; pip install 'unmask[hf]'"
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(f"transformers is not installed; {remedy}") from error
    version = transformers.__version__
    if tuple(map(int, version.split(".")[:2])) < OLDEST_TRANSFORMERS:
        raise ConfigError(f"transformers is version {version}; {remedy}")
    if not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            f"{folder} has no safetensors weights; allowed: a folder with model.safetensors, pickles (.bin) are not "
            "read; check the path, or convert the weights with save_pretrained of transformers"
        )
    log: Any = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        if tokenizer is None:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
        model, info = transformers.AutoModelForMaskedLM.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            # Refused below with their names; transformers would only point at its log.
            ignore_mismatched_sizes=True,
            **({"attn_implementation": "eager"} if attention else {}),
            **local,
        )
    except Exception as error:  # whatever broken files make the package raise
        # The first paragraph of the message, on one line.
        reason = " ".join(str(error).strip().partition("\n\n")[0].split()) or type(error).__name__
        raise CheckpointError(
            f"{folder} cannot be loaded ({reason[:300]}); allowed: config.json, weights and tokenizer of a masked "
            "language model that transformers knows; check that the folder is complete"
        ) from error
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
    _check_weights(folder, info)
    return model, tokenizer


def _check_weights(folder: Path, info: Mapping[str, Any]) -> None:
    """Refuse missing, surplus and misshapen weights; `info` is the loading info of transformers."""
    # Each mismatch is a name with its shape in the file and in the model.
    mismatched = [f"{name} {list(stored)} for {list(wanted)}" for name, stored, wanted in info["mismatched_keys"]]
    for names, problem, hint in (
        (info["missing_keys"], "lacks the weights", "choose a checkpoint that was saved with its masked-LM head"),
        (mismatched, "has weights of other shapes than its config.json says:", "restore config.json"),
        (info["unexpected_keys"], "has weights for which its config.json has no place:", "restore config.json"),
    ):
        named = sorted(name for name in names if not any(part in name for part in UNREAD_WEIGHTS))
        if named:
            more = f" and {len(named) - 4} more" if len(named) > 4 else ""
            raise CheckpointError(
                f"{folder} {problem} {', '.join(named[:4])}{more}; allowed: weights and config.json of one model; "
                f"{hint}"
            )


@torch.inference_mode()
def _check_padding(folder: Path, denoiser: MaskedLM, codec: MaskedLMCodec) -> None:
    """Refuse a model whose predictions depend on the padding behind the text, as those of FNet do.

    Rows of a batch are padded, so such a model would answer for other text than its row holds. No configuration says
    so; hence two passes over a few tokens, with padding and without.
    """
    model, special = denoiser.model, {codec.mask_id, *codec.tokenizer.all_special_ids}
    ordinary = [token for token in sorted(codec.tokenizer.get_vocab().values()) if token not in special]
    tokens_1N = torch.tensor([[codec.mask_id, *ordinary[:6], codec.mask_id]], device=denoiser.device)
    length, padded = tokens_1N.shape[1], denoiser.padded_slots(tokens_1N.shape[1])
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
    """Return the index of the first position: 0, or pad_token_id + 1 in `COUNTS_AFTER_PADDING`."""
    rotary = getattr(config, "position_embedding_type", "absolute") == "rotary"
    return 0 if rotary or config.model_type not in COUNTS_AFTER_PADDING else int(config.pad_token_id) + 1
