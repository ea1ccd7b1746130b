"""Learn a byte-level BPE tokenizer, and write it in the files of a family, with control tokens and chat template."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from unmask.base.errors import ConfigError

SPLIT = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+"
"""Every digit is a token of its own. Words take the space before them. Signs and line ends do not mix with words."""


@dataclass(frozen=True)
class ChatFormat:
    """Chat format of a model family: control tokens, chat template, and the text before and after a request."""

    control: tuple[str, ...]
    """Control tokens in the order of their ids, which follow all others."""
    bos: str
    eos: str
    turn: str
    """Token that ends an answer; `eos` tokens pad it to its length."""
    mask: str
    before: str
    after: str
    template: str
    tokenizer_class: str

    def render_prompt(self, prompt: str) -> str:
        """Write a prompt in the chat format, up to the point where the answer starts."""
        return f"{self.before}{prompt.strip()}{self.after}"


CHATS = {
    "llada": ChatFormat(
        control=(
            "<|startoftext|>",
            "<|endoftext|>",
            "<|mdm_mask|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ),
        bos="<|startoftext|>",
        eos="<|endoftext|>",
        turn="<|eot_id|>",
        mask="<|mdm_mask|>",
        before="<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n",
        after="<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        # As published, down to the assistant's header that it always writes.
        template=(
            "{% set loop_messages = messages %}{% for message in loop_messages %}"
            "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
            "+ message['content'] | trim + '<|eot_id|>' %}"
            "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
            "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
        ),
        tokenizer_class="PreTrainedTokenizerFast",
    ),
    "dream": ChatFormat(
        control=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"),
        bos="<|beginoftext|>",
        eos="<|endoftext|>",
        turn="<|im_end|>",
        mask="<|mask|>",
        before="<|im_start|>user\n",
        after="<|im_end|>\n<|im_start|>assistant\n",
        # ChatML as published, without its default system line and its tools.
        template=(
            "{%- for message in messages %}"
            "{{- '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>' + '\n' }}"
            "{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
        ),
        tokenizer_class="Qwen2TokenizerFast",
    ),
}


def learn_tokenizer(texts: Iterable[str], size: int, chat: ChatFormat) -> Tokenizer:
    """Learn a tokenizer of exactly `size` tokens: bytes, merges from the texts, and the control tokens last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(chat.control),
        # Sorted, because `alphabet` has no fixed order.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in chat.control])
    if tokenizer.get_vocab_size() != size:
        raise ConfigError(
            f"size of tokenizer is {size}; allowed: up to {tokenizer.get_vocab_size()} with the texts it is learnt "
            "from; lower it, or raise the tokenizer's examples"
        )
    return tokenizer


@dataclass(frozen=True)
class ControlIds:
    """Token ids of the control tokens of a tokenizer."""

    bos: int
    eos: int
    turn: int
    mask: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, chat: ChatFormat) -> "ControlIds":
        """Look up the ids of a family's control tokens in a tokenizer."""
        known = tokenizer.get_vocab(with_added_tokens=True)
        return cls(bos=known[chat.bos], eos=known[chat.eos], turn=known[chat.turn], mask=known[chat.mask])


def make_tokenizer_files(tokenizer: Tokenizer, chat: ChatFormat, context: int) -> dict[str, str]:
    """Return the content of each tokenizer file by its name, as transformers and `load` expect it."""
    added = {
        str(tokenizer.token_to_id(text)): {
            "content": text,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for text in chat.control
    }
    settings: dict[str, Any] = {
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": added,
        "bos_token": chat.bos,
        "chat_template": chat.template,
        "clean_up_tokenization_spaces": False,
        "eos_token": chat.eos,
        "model_max_length": context,
        "pad_token": chat.eos,
        "tokenizer_class": chat.tokenizer_class,
    }
    if chat is CHATS["dream"]:
        # LLaDA's published tokenizer names no mask; readers take it from config.json.
        settings["mask_token"] = chat.mask
    return {
        "tokenizer.json": tokenizer.to_str(pretty=False) + "\n",
        "tokenizer_config.json": json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
    }
