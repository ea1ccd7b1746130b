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


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([{"role": "user", "content": "abc"}], r"a conversation; allowed: one text .*pass a string"),
        *((f"a{blank}", "holds a blank; .*use infill") for blank in ("_", "[MASK]", "[MASK*2]")),
        *((f"a{letter}", f"the character '{letter}'; allowed: the letters 'abcd'") for letter in "e Aé"),
    ],
)
def test_impossible_prompts_are_refused(prompt, message):
    with pytest.raises(ConfigError, match=message):
        CODEC.encode(prompt)


@pytest.mark.parametrize("vocab", [1, 53])
def test_vocab_is_limited_to_letters(vocab):
    with pytest.raises(ConfigError, match="2 to 52"):
        LetterCodec(vocab)
