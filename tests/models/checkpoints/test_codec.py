"""The codec of published checkpoints: texts and conversations as the authors read them, and what does not fit."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.cases import each_case
from tests.helpers.checkpoint_texts import KINDS, ROWS, VARIANTS, edit, read
from unmask.base.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
IDS = st.lists(st.integers(-3, ROWS + 20), max_size=20)


# Published behaviour.


@VARIANTS
def test_texts_are_read_as_by_the_authors_tokenizers(name, codecs, golden):
    codec = codecs[name]
    assert codec.tokenizer.get_vocab_size() == golden[name]["length"]
    for case in golden[name]["texts"]:
        assert codec.tokenizer.encode(case["text"], add_special_tokens=False).ids == case["ids"], case["text"]
        assert codec.canvas(case["text"]) == case["ids"], case["text"]
        assert codec.decode(case["ids"]) == case["decoded"], case["text"]
        if case["decoded"] == case["decoded_plain"] and "<|im" not in case["text"]:
            assert codec.answer(case["ids"]) == case["decoded_plain"], case["text"]


@VARIANTS
def test_conversations_are_written_as_by_the_authors_templates(name, codecs, golden):
    codec = codecs[name]
    assert codec.template is not None
    for case in golden[name]["chats"]:
        assert codec.template.render(case["messages"], case["add_generation_prompt"]) == case["text"]
        if case["add_generation_prompt"]:
            assert codec.encode(case["messages"]) == case["ids"]


def test_published_ids_of_masks_and_ends(codecs):
    llada, dream = codecs["llada_real_ids"], codecs["dream_real_ids"]
    assert (llada.mask_id, llada.mask, llada.eos_ids) == (126336, "<|mdm_mask|>", (126081, 126348))
    assert (dream.mask_id, dream.mask, dream.eos_ids) == (151666, "<|mask|>", (151643, 151645))
    assert llada.encode("Hi")[:2] == [126080, 126346]
    assert dream.encode("Hi")[0] == 151644


# The codec.


@KINDS
def test_chat_false_reads_plain_prompts(kind, folders, scaled):
    plain = read(folders[kind], kind, scaled.special_ids(folders[kind]), chat=False)
    assert plain.template is None
    assert plain.decode(plain.encode("Hello, world!")) == "Hello, world!"
    with pytest.raises(ConfigError, match=r"prompt is \[.*\]; allowed: one text, because there is no chat template"):
        plain.encode([{"role": "user", "content": "Hi"}])


@KINDS
@pytest.mark.parametrize("chat", [None, False])
def test_blanks_in_a_prompt_are_refused(kind, chat, folders, scaled):
    codec = read(folders[kind], kind, scaled.special_ids(folders[kind]), chat=chat)
    for blank in ("[MASK]", "[MASK*2]", codec.mask):
        with pytest.raises(ConfigError, match=r"the prompt holds a blank: 'Fill .*use infill"):
            codec.encode(f"Fill {blank} in")
    if chat is None:
        with pytest.raises(ConfigError, match="use infill"):
            codec.encode([{"role": "system", "content": codec.mask}, {"role": "user", "content": "Hi"}])


@KINDS
def test_answer_ends_at_the_first_end(kind, codecs):
    codec = codecs[kind]
    body = codec.canvas("The answer is 72.")
    for end in codec.eos_ids:
        assert codec.answer([*body, end, *body, end]) == "The answer is 72."
    assert codec.answer([codec.eos_ids[0]]) == codec.answer([]) == ""


@KINDS
def test_answer_shows_masks_and_hides_control_tokens(kind, codecs, folders, scaled):
    codec, ids = codecs[kind], scaled.special_ids(folders[kind])
    control = ids["<|start_header_id|>" if kind == "llada" else "<|im_start|>"]
    tokens = [control, *codec.canvas("Hi"), codec.mask_id, codec.mask_id, *codec.canvas(" you")]
    assert codec.answer(tokens) == f"Hi{codec.mask * 2} you"


def test_ordinary_added_tokens_belong_to_the_answer(codecs):
    dream = codecs["dream"]
    assert dream.answer(dream.canvas("<tool_call>{}</tool_call>")) == "<tool_call>{}</tool_call>"


@KINDS
def test_ids_without_a_token_are_spelled_by_number(kind, codecs):
    codec = codecs[kind]
    tokens = [*codec.canvas("a"), ROWS - 1, ROWS - 1, -1, 2**40, *codec.canvas("b")]
    assert codec.decode(tokens) == codec.answer(tokens) == f"a<{ROWS - 1}><{ROWS - 1}><-1><{2**40}>b"


@KINDS
def test_text_that_utf8_cannot_write_is_refused(kind, codecs):
    with pytest.raises(ConfigError, match=r"the text holds '\\ud800' at character 1"):
        codecs[kind].canvas("a\ud800b")
    with pytest.raises(ConfigError, match="the prompt holds"):
        codecs[kind].encode("a\ud800b")


@given(text=TEXT)
@KINDS
def test_any_text_round_trips(kind, codecs, text):
    codec = codecs[kind]
    shown = text.replace("[MASK]", codec.mask)
    expected = unicodedata.normalize("NFC", shown) if kind == "dream" else shown
    assert codec.decode(codec.canvas(text)) == expected
    if codec.mask not in shown:
        assert expected.strip() in codec.decode(codec.encode(text))


# Conversations.


@each_case(
    ("prompt", "message"),
    [
        ([], r"prompt is \[\]; allowed: a text, or messages"),
        (3, "prompt is 3; allowed: a text, or messages"),
        (["Hi"], "message 0 of the prompt is 'Hi'; allowed: role and content"),
        ([{"role": "user"}], "message 0 of the prompt is"),
        ([{"role": "user", "content": "Hi", "name": "x"}], "write these two keys and no others"),
        ([{"role": "tool", "content": "Hi"}], "role of message 0 is 'tool'; allowed: system, user, assistant"),
        ([{"role": ["user"], "content": "Hi"}], "role of message 0 is"),
        ([{"role": "user", "content": ["Hi"]}], r"content of message 0 is \['Hi'\]; allowed: a text"),
        ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], "last message is 'assistant'"),
        ([{"role": "system", "content": "Hi"}], "role of the last message is 'system'; allowed: user"),
    ],
)
def test_impossible_conversations_are_refused(prompt, message, codecs):
    with pytest.raises(ConfigError, match=message):
        codecs["dream"].encode(prompt)


# Templates that are there or not.


def test_missing_template_is_none_or_refused(copy, scaled):
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    edit(folder / "tokenizer_config.json", lambda d: d.pop("chat_template"))
    assert read(folder, "llada", ids).template is None
    with pytest.raises(ConfigError, match=r"chat is True, but .* has no chat template .*leave chat out"):
        read(folder, "llada", ids, chat=True)


# Tokenizer and model must fit each other.


def test_plain_prompts_get_the_tokens_that_a_tokenizer_adds(copy, scaled):
    """Plain prompts get them, as from the authors' programs; templates write theirs, and blanks stand in bare text."""
    folder = copy("llada")
    ids = scaled.special_ids(folder)
    bos = {"id": "<|startoftext|>", "ids": [ids["<|startoftext|>"]], "tokens": ["<|startoftext|>"]}
    single = [{"SpecialToken": {"id": "<|startoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    adds = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {"<|startoftext|>": bos}}
    edit(folder / "tokenizer.json", lambda d: d.update(post_processor=adds))
    plain, chat = read(folder, "llada", ids, chat=False), read(folder, "llada", ids)
    assert plain.encode("Hi") == [ids["<|startoftext|>"], *plain.canvas("Hi")]
    assert chat.encode("Hi").count(ids["<|startoftext|>"]) == 1
