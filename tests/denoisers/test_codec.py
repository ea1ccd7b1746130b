"""Letters for tokens, and what is refused."""

import pytest

from unmask.denoisers import LetterCodec
from unmask.errors import ConfigError

CODEC = LetterCodec(4)


def test_letters_there_and_back():
    assert CODEC.encode("abcd") == [0, 1, 2, 3]
    assert CODEC.decode([3, 2, 4, 0]) == "dc_a"
    assert CODEC.decode(CODEC.canvas("a_bd")) == "a_bd"


def test_both_spellings_of_a_blank():
    assert CODEC.canvas("a_[MASK]b") == [0, 4, 4, 1]


def test_the_largest_alphabet():
    codec = LetterCodec(52)
    assert codec.decode(codec.encode("azAZ")) == "azAZ"


@pytest.mark.parametrize("blank", ["_", "[MASK]"])
def test_a_prompt_has_no_blanks(blank):
    with pytest.raises(ConfigError, match="infill"):
        CODEC.encode(f"a{blank}")


@pytest.mark.parametrize("text", ["ae", "a b", "A", "é"])
def test_a_wrong_character_is_named_with_the_alphabet(text):
    for read in (CODEC.encode, CODEC.canvas):
        with pytest.raises(ConfigError, match="'abcd'") as refused:
            read(text)
        wrong = next(letter for letter in text if letter not in "abcd")
        assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize("vocab", [1, 53])
def test_as_many_tokens_as_letters(vocab):
    with pytest.raises(ConfigError, match="2 to 52"):
        LetterCodec(vocab)
