"""Letters for tokens, and what is refused."""

import pytest

from unmask.base.errors import ConfigError
from unmask.models import LetterCodec

CODEC = LetterCodec(4)


def test_letters_round_trip():
    assert CODEC.encode("abcd") == [0, 1, 2, 3]
    assert CODEC.decode([3, 2, 4, 0]) == "dc_a"
    assert CODEC.decode(CODEC.canvas("a_bd")) == "a_bd"


def test_blanks_have_two_spellings():
    assert CODEC.canvas("a_[MASK]b") == [0, 4, 4, 1]
    assert CODEC.canvas("[MASK*3]a") == [4, 4, 4, 0]


@pytest.mark.parametrize("word", ["[MASK*0]", "[MASK*100001]", "[MASK*" + "9" * 5000 + "]"])
def test_number_of_blanks_has_limits(word):
    with pytest.raises(ConfigError, match=r"allowed: \[MASK\*1\] to \[MASK\*100000\]"):
        CODEC.canvas(word)


def test_conversations_are_refused():
    with pytest.raises(ConfigError, match=r"a conversation; allowed: one text .*pass a string"):
        CODEC.encode([{"role": "user", "content": "abc"}])


@pytest.mark.parametrize("blank", ["_", "[MASK]", "[MASK*2]"])
def test_blanks_in_a_prompt_are_refused(blank):
    with pytest.raises(ConfigError, match="infill"):
        CODEC.encode(f"a{blank}")


@pytest.mark.parametrize("text", ["ae", "a b", "A", "é"])
def test_wrong_character_is_named_with_the_alphabet(text):
    for read in (CODEC.encode, CODEC.canvas):
        with pytest.raises(ConfigError, match="'abcd'") as refused:
            read(text)
        wrong = next(letter for letter in text if letter not in "abcd")
        assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize("vocab", [1, 53])
def test_vocab_is_limited_to_letters(vocab):
    with pytest.raises(ConfigError, match="2 to 52"):
        LetterCodec(vocab)
