"""What settles the hidden words of a sentence, in seven forms."""

from collections.abc import Sequence

from unmask.tasks.constructed.sparse.sentences import BLANKS, LABELS, WORDS, Word, fill, word_class
from unmask.tasks.draw import Draw
from unmask.tasks.words import sentence_case


def record(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """The facts as fields and values, in any order."""
    joint = draw.choice(("; ", ", ", " | ", "\n"))
    sign = draw.choice((": ", " = ", " - "))
    return joint.join(f"{draw.choice(LABELS[slot])}{sign}{values[slot]}" for slot in draw.shuffled(slots))


def questions(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """The facts as questions and answers."""
    return " ".join(
        f"{sentence_case(LABELS[slot][0])}? {sentence_case(values[slot])}." for slot in draw.shuffled(slots)
    )


def bank(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """The words of the sentence, in alphabetical order."""
    words = sorted((values[slot] for slot in slots), key=str.lower)
    intro = draw.choice(("Words of the sentence: ", "Word list: ", "These words occur once each: ", "Word bank: "))
    return intro + ", ".join(words)


def pieces(draw: Draw, words: Sequence[Word]) -> str:
    """The sentence in pieces, out of order."""
    by_piece: dict[int, list[str]] = {}
    for word in words:
        by_piece.setdefault(word.piece, []).append(word.text)
    joint = draw.choice((" / ", " | ", "; "))
    intro = draw.choice(("Pieces in no order: ", "The sentence in pieces, out of order: ", "Cut up and mixed: "))
    return intro + joint.join(" ".join(piece) for piece in draw.shuffled(list(by_piece.values())))


def rows(draw: Draw, slots: Sequence[str], values: dict[str, str], others: Sequence[dict[str, str]]) -> str:
    """Several records as the rows of a table; the sentence matches one."""
    order = draw.shuffled(slots)
    records = draw.shuffled([values, *others])
    joint = draw.choice((" | ", ", ", " / "))
    header = joint.join(LABELS[slot][0] for slot in order)
    return "\n".join([header, *(joint.join(row[slot] for slot in order) for row in records)])


_BASE_RULES = (
    "The note has base forms; use the past tense, numbers in words, and plurals after numbers.",
    "In the sentence, deeds are in the past tense, numbers are written in words, and their nouns are plural.",
    "Turn verbs into the past tense, digits into words, and counted nouns into the plural.",
)


def base(draw: Draw, slots: Sequence[str], values: dict[str, str]) -> str:
    """A record in base forms, and how to inflect them."""
    shown = {slot: values.get(f"base {slot}", values[slot]) for slot in slots}
    return f"{record(draw, slots, shown)}\n{draw.choice(_BASE_RULES)}"


def corrected(
    draw: Draw, slots: Sequence[str], values: dict[str, str], wrong: dict[str, str], changed: Sequence[str]
) -> str:
    """A record of which some fields are put right afterwards."""
    shown = {slot: wrong[slot] if slot in changed else values[slot] for slot in slots}
    facts = record(draw, slots, shown)
    form = draw.choice(("not {old} but {new}", "{new} instead of {old}", "read {new} for {old}"))
    fixes = [form.format(old=wrong[slot], new=values[slot]) for slot in changed]
    return f"{facts}\nCorrections: {'; '.join(fixes)}."


_INFLECTED = ("past", "num", "nouns", "foods", "animals")


def is_settled(kind: str, words: Sequence[Word], mask: Sequence[int], rows: Sequence[dict[str, str]]) -> bool:
    """Whether the evidence leaves no choice for these blanks, and is needed for them."""
    hidden = [words[at] for at in mask]
    if len({word.text for word in hidden}) < BLANKS:
        return False
    if kind == "bank":
        classes = [word_class(word.slot) for word in hidden]
        strays = [
            word.text in WORDS.get(name, ()) for word in hidden for name in classes if name != word_class(word.slot)
        ]
        return len(set(classes)) == len(classes) and not any(strays)
    if kind == "pieces":
        return len(_fillings(words, mask)) == 1 and any(word.slot for word in hidden)
    if kind == "base":
        return any(word.slot in _INFLECTED for word in hidden)
    seen = {word.slot: word.text for at, word in enumerate(words) if word.slot and at not in mask}
    return not any(all(row[slot] == text for slot, text in seen.items()) for row in rows)


def _fillings(words: Sequence[Word], mask: Sequence[int]) -> set[tuple[str, ...]]:
    """Every sentence that the pieces make in some order without contradicting a visible word."""
    by_piece: dict[int, tuple[str, ...]] = {}
    for word in words:
        by_piece[word.piece] = (*by_piece.get(word.piece, ()), word.text)
    seen = [None if at in mask else word.text for at, word in enumerate(words)]
    sentences = set()

    def place(left: tuple[int, ...], made: tuple[str, ...]) -> None:
        if not left:
            sentences.add(made)
        for piece in left:
            text = by_piece[piece]
            if all(shown in (None, word) for shown, word in zip(seen[len(made) :], text, strict=False)):
                place(tuple(other for other in left if other != piece), (*made, *text))

    place(tuple(by_piece), ())
    return sentences


def others(draw: Draw, slots: Sequence[str], values: dict[str, str], level: int) -> list[dict[str, str]]:
    """More records of the same kind. At level 4 each shares some fields with the true one."""
    records = []
    for _ in range(2 if level == 3 else 3):
        other = fill(draw, slots)
        if level == 4:
            other |= {slot: values[slot] for slot in draw.sample(slots, 2)}
        records.append(other)
    return records


def beside(draw: Draw, slots: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """Up to two slots that the sentence does not have, of a kind that fits none of its blanks."""
    taken = {word_class(slot) for slot in hidden}
    unused = [slot for slot in LABELS if slot not in slots and word_class(slot) not in taken]
    return draw.sample(unused, min(2, len(unused)))


def to_correct(draw: Draw, slots: Sequence[str], sparse: Sequence[str], clustered: Sequence[str], k: int) -> list[str]:
    """k slots, among them a hidden one in either mask."""
    changed = list(dict.fromkeys((draw.choice(sparse), draw.choice(clustered))))
    rest = [slot for slot in slots if slot not in changed]
    return changed + draw.sample(rest, k - len(changed))
