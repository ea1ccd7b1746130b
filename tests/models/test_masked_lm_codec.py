"""The codec of masked language models: frames, blanks, and the tokenizer's own signs."""

import pytest

from tests.helpers.tiny_tokenizer import CLS, MASK, PAD, SEP, tiny_tokenizer
from unmask.base.errors import ConfigError
from unmask.models.masked_lm import MaskedLMCodec

tf = pytest.importorskip("transformers", reason="needs transformers: pip install 'unmask[hf]'")
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: E402


def test_codec_frames_canvases_and_leaves_prompts_open():
    codec = MaskedLMCodec(tiny_tokenizer())
    assert codec.mask == "[MASK]"
    assert codec.eos_ids == (SEP,)
    assert codec.encode("w7 w8") == [CLS, 7, 8]
    assert codec.encode("") == [CLS]
    assert codec.canvas("w7 [MASK] w8 [MASK*3]") == [CLS, 7, MASK, 8, MASK, MASK, MASK, SEP]
    assert codec.decode([CLS, 7, MASK, SEP, PAD]) == "[CLS] w7 [MASK] [SEP] [PAD]"
    assert codec.answer([CLS, 7, 8, SEP, 9]) == "w7 w8"
    assert codec.answer((7, PAD, 8)) == "w7 w8"
    for blank in ("w7 [MASK]", "[MASK*2] w7"):
        with pytest.raises(ConfigError, match="use infill"):
            codec.encode(blank)
    with pytest.raises(ConfigError, match="no chat format"):
        codec.encode([{"role": "user", "content": "w7"}])


def test_text_that_the_vocabulary_cannot_write_is_refused():
    codec = MaskedLMCodec(tiny_tokenizer())
    with pytest.raises(ConfigError, match="the text holds 'quux', for which the model has no token; allowed"):
        codec.canvas("w7 [MASK*2] quux")
    with pytest.raises(ConfigError, match="'zebra'"):
        codec.encode("zebra w7 quux")


def test_codec_takes_the_tokenizers_own_signs():
    """RoBERTa's words for everything, its mask that swallows the space before it, and no closing token."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "Ġb", "b", "Ġ"]
    core = Tokenizer(models.BPE({w: n for n, w in enumerate(words)}, [("Ġ", "b")], unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = tf.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        mask_token=tf.AddedToken("<mask>", lstrip=True, special=True),
    )
    codec = MaskedLMCodec(tokenizer)
    assert codec.mask == "<mask>"
    assert codec.eos_ids == (2,)
    assert codec.canvas("a [MASK] b") == codec.canvas("a <mask> b") == [0, 5, 4, 6]
    assert codec.canvas("a[MASK*2]") == [0, 5, 4, 4]
    assert codec.encode("a b") == [0, 5, 6]
    assert codec.answer([5, 6, 2, 6]) == "a b"
    with pytest.raises(ConfigError, match="holds a blank"):
        codec.encode("a <mask>")
