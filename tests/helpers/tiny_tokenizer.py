"""A tokenizer of a few words, framed as a masked language model frames its text."""

from typing import Any

# In RoBERTa's order: the padding of a canvas, 0, is not the padding of the model.
CLS, PAD, SEP, UNK, MASK = range(5)
SPECIAL = {
    "cls_token": "[CLS]",
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}
WORDS = [*SPECIAL.values(), *(f"w{n}" for n in range(5, 45))]


def tiny_tokenizer(closing: str = " [SEP]", **changes: str | int | None) -> Any:
    """[CLS] before a text, and by default [SEP] behind it."""
    import transformers as tf
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    core = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single=f"[CLS] $A{closing}", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return tf.PreTrainedTokenizerFast(tokenizer_object=core, **{**SPECIAL, **changes})
