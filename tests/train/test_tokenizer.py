"""The tokenizer: digits alone, control tokens whole, bytes lossless, files as their readers expect them."""

import pytest

from unmask.models.checkpoints import TextCodec
from unmask.train.tokenizer import CHATS, ControlIds, learn_tokenizer, make_tokenizer_files

LESSONS = [
    "the lamp in the hall holds 42 candles; [1]=lamp",
    "def add(a, b):\n    return a + b\n",
    "Größe 7 € 日本",
] * 30


@pytest.fixture(scope="module", params=["llada", "dream"])
def chat(request):
    return CHATS[request.param]


@pytest.fixture(scope="module")
def tokenizer(chat):
    return learn_tokenizer(LESSONS, 300, chat)


def test_every_digit_is_a_token_of_its_own(tokenizer):
    shown = [tokenizer.id_to_token(i) for i in tokenizer.encode("room 1984, [12]=7").ids]
    assert [t for t in shown if any(c.isdigit() for c in t)] == list("1984127")
    multi = [t for t in tokenizer.get_vocab(with_added_tokens=False) if len(t) > 1 and any(c.isdigit() for c in t)]
    assert not multi


def test_control_tokens_are_whole_and_come_last(tokenizer, chat):
    size = tokenizer.get_vocab_size()
    assert size == 300
    numbers = [tokenizer.token_to_id(text) for text in chat.control]
    assert numbers == list(range(size - len(chat.control), size))
    for text, number in zip(chat.control, numbers, strict=True):
        assert tokenizer.encode(f"a{text}b").ids[1] == number


def test_files_read_back_and_the_template_writes_what_training_read(tokenizer, chat, tmp_path):
    for name, text in make_tokenizer_files(tokenizer, chat, 512).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ids = ControlIds.of(tokenizer, chat)
    codec = TextCodec.read(tmp_path, mask_id=ids.mask, vocab=300, ends=(ids.eos, chat.turn))
    assert codec.mask == chat.mask
    assert codec.eos_ids == (ids.eos, ids.turn)
    question = "  How many candles?\n"
    assert codec.template is not None
    assert codec.template.render([{"role": "user", "content": question}]) == chat.render_prompt(question)
    assert codec.encode(question) == tokenizer.encode(chat.render_prompt(question), add_special_tokens=False).ids
    answer = [*tokenizer.encode("42 candles").ids, ids.turn, ids.eos, ids.eos]
    assert codec.answer(answer) == "42 candles"
