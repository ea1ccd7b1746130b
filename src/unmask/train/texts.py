"""Write plain requests and answers for training: sentences, sums, small functions.

A text is a function of the random numbers it is given. Changing a line here changes every model trained from a
configuration that names its source.
"""

from collections.abc import Callable
from typing import NamedTuple

from unmask.tasks import Draw, words


class TextPair(NamedTuple):
    """A request and its answer."""

    prompt: str
    answer: str


def make_english_text(draw: Draw) -> TextPair:
    """Write a request about everyday things, with its answer."""
    return draw.choice(_ENGLISH)(draw)


def make_arithmetic_text(draw: Draw) -> TextPair:
    """Write a sum or product, with its result."""
    first, second = draw.integer(0, 999), draw.integer(0, 99)
    first, second = (first, second) if draw.chance(0.5) else (second, first)
    if draw.chance(0.25):
        first, second = draw.integer(2, 12), draw.integer(2, 99)
        sign, word, result = "*", "times", first * second
    elif draw.chance(0.33):
        first, second = max(first, second), min(first, second)
        sign, word, result = "-", "minus", first - second
    else:
        sign, word, result = "+", "plus", first + second
    prompt = draw.choice(
        (
            f"What is {first} {sign} {second}?",
            f"How much is {first} {word} {second}?",
            f"Work out {first} {sign} {second}.",
            f"{first} {sign} {second} =",
        )
    )
    if draw.chance(0.5):
        return TextPair(prompt, f"{first} {sign} {second} = {result}")
    return TextPair(f"{prompt} Number only.", str(result))


def make_code_text(draw: Draw) -> TextPair:
    """Write a request for a small Python function, with the function."""
    return draw.choice(_CODE)(draw)


def _write_description(draw: Draw) -> TextPair:
    thing, site = draw.choice(words.THINGS), draw.choice(words.SITES)
    quality, colour, material = draw.choice(words.ADJECTIVES), draw.choice(words.COLOURS), draw.choice(words.MATERIALS)
    first = words.sentence_case(f"{words.with_article(f'{quality} {thing}')} stands in the {site}.")
    second = f"It is {colour} and made of {material}."
    prompt = draw.choice(
        (f"Describe the {thing}.", f"Tell me about the {thing} in the {site}.", f"What about the {thing}?")
    )
    return TextPair(prompt, f"{first} {second}" if draw.chance(0.6) else first)


def _write_story(draw: Draw) -> TextPair:
    name, job, town = draw.choice(words.FIRST), draw.choice(words.JOBS), draw.choice(words.TOWNS)
    past = draw.choice(words.VERBS)[1]
    day, mood, thing = draw.choice(words.DAYS), draw.choice(words.MOODS), draw.choice(words.THINGS)
    first = f"{name} is {words.with_article(job)} from {town}."
    second = f"Last {day} {name} {past} the {thing} and was {mood}."
    prompt = draw.choice(
        (f"Who is {name}?", f"Tell a story about {name}.", f"Write two sentences about {words.with_article(job)}.")
    )
    return TextPair(prompt, f"{first} {second}")


def _write_opposite(draw: Draw) -> TextPair:
    first, second = draw.choice(words.OPPOSITES)
    prompt = draw.choice(
        (f"What is the opposite of {first}?", f"Opposite of {first}:", f"Name the opposite of '{first}'.")
    )
    return TextPair(prompt, f"The opposite of {first} is {second}.")


def _write_plural(draw: Draw) -> TextPair:
    noun = draw.choice(words.GOODS)
    many = words.plural(noun)
    n = draw.integer(2, 99)
    prompt = draw.choice(
        (f"One {noun}, {n} what?", f"What is the plural of {noun}?", f"Say that there are {n} of these: {noun}")
    )
    return TextPair(
        prompt,
        f"There are {words.number_in_words(n)} {many}." if str(n) in prompt else f"The plural of {noun} is {many}.",
    )


def _write_past_tense(draw: Draw) -> TextPair:
    verb, past, *_ = draw.choice(words.VERBS)
    who, thing = draw.choice(words.FIRST), draw.choice(words.THINGS)
    prompt = draw.choice((f"Put into the past: {who} will {verb} the {thing}.", f"What is the past tense of {verb}?"))
    return TextPair(prompt, f"{who} {past} the {thing}." if who in prompt else f"The past tense of {verb} is {past}.")


def _write_word_list(draw: Draw) -> TextPair:
    bag = words.pick_distinct(draw, words.COMMON, draw.integer(3, 5))
    listed = words.join_words(bag)
    if draw.chance(0.5):
        return TextPair(f"Which of these is the last in the list: {listed}?", f"The last one is {bag[-1]}.")
    return TextPair(f"How many words are these: {listed}?", f"These are {words.number_in_words(len(bag))} words.")


def _write_greeting(draw: Draw) -> TextPair:
    name, town, day = draw.choice(words.FIRST), draw.choice(words.TOWNS), draw.choice(words.DAYS)
    prompt = draw.choice((f"Greet {name}.", f"Say hello to {name} from {town}.", f"Wish {name} a good {day}."))
    answer = f"Hello {name}, I wish you a good {day}." if day in prompt else f"Hello {name}!"
    return TextPair(prompt, f"Hello {name} from {town}!" if town in prompt else answer)


_ENGLISH: tuple[Callable[[Draw], TextPair], ...] = (
    _write_description,
    _write_story,
    _write_story,
    _write_opposite,
    _write_plural,
    _write_past_tense,
    _write_word_list,
    _write_greeting,
)

_OPERATIONS = (
    ("add", "adds", "+"),
    ("subtract", "subtracts", "-"),
    ("multiply", "multiplies", "*"),
    ("divide", "divides", "/"),
)
_AGGREGATES = ("max", "min", "sum", "len", "sorted")


def _write_operation_function(draw: Draw) -> TextPair:
    name, does, sign = draw.choice(_OPERATIONS)
    first, second = draw.sample(("a", "b", "x", "y", "left", "right", "n", "m"), 2)
    prompt = draw.choice(
        (f"Write a Python function that {does} two numbers.", f"Python: def {name}({first}, {second})")
    )
    return TextPair(prompt, f"def {name}({first}, {second}):\n    return {first} {sign} {second}")


def _write_constant_sum_function(draw: Draw) -> TextPair:
    thing, n = draw.choice(words.THINGS), draw.integer(2, 99)
    prompt = f"Write a Python function count_{thing} that returns its argument plus {n}."
    return TextPair(prompt, f"def count_{thing}(n):\n    return n + {n}")


def _write_aggregate_function(draw: Draw) -> TextPair:
    kind, noun = draw.choice(_AGGREGATES), words.plural(draw.choice(words.THINGS))
    prompt = f"Write a Python function {kind}_{noun} that returns the {kind} of a list of {noun}."
    return TextPair(prompt, f"def {kind}_{noun}({noun}):\n    return {kind}({noun})")


def _write_filter_function(draw: Draw) -> TextPair:
    noun, limit = words.plural(draw.choice(words.GOODS)), draw.integer(1, 99)
    word, sign = draw.choice((("above", ">"), ("below", "<"), ("equal to", "==")))
    prompt = f"Write a Python function that keeps the {noun} {word} {limit}."
    return TextPair(prompt, f"def keep({noun}):\n    return [x for x in {noun} if x {sign} {limit}]")


def _write_program_that_prints(draw: Draw) -> TextPair:
    noun = draw.choice(words.ANIMALS)
    prompt = f"Print '{noun}' {(n := draw.integer(2, 20))} times in Python."
    return TextPair(prompt, f"for i in range({n}):\n    print('{noun}')")


def _write_price_dictionary(draw: Draw) -> TextPair:
    first, second = words.pick_distinct(draw, words.GOODS, 2)
    n, m = draw.integer(1, 99), draw.integer(1, 99)
    prompt = f"Python dictionary of prices: {first} {n}, {second} {m}."
    return TextPair(prompt, f"prices = {{'{first}': {n}, '{second}': {m}}}")


_CODE: tuple[Callable[[Draw], TextPair], ...] = (
    _write_operation_function,
    _write_constant_sum_function,
    _write_aggregate_function,
    _write_filter_function,
    _write_program_that_prints,
    _write_price_dictionary,
)
