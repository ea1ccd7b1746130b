"""TD07: the missing words follow from the evidence, in the task and in its control."""

import re
from collections import Counter
from itertools import permutations

import pytest

from tests.helpers.constructed import PAST, drafts, many
from unmask.tasks import Example, Task, words
from unmask.tasks.constructed import sparse


def sentence_of(draft: Example) -> str:
    """The sentence with its blanks, found by putting the answers in."""
    whole = str(draft.constraints["sentence"])
    pattern = []
    for at, word in enumerate(whole.split()):
        if at in draft.constraints["positions"]:
            index = draft.constraints["positions"].index(at) + 1
            word = f"[{index}]" + ("," if word.endswith(",") else "." if word.endswith(".") else "")
        pattern.append(word)
    text = " ".join(pattern)
    assert text in draft.prompt, (text, draft.prompt)
    return text


def evidence_of(draft: Example) -> str:
    return draft.prompt.rsplit("\n", 1)[0].replace(sentence_of(draft), "\n")


def visible(draft: Example) -> set[str]:
    return {word.strip(",.").lower() for word in sentence_of(draft).split() if "[" not in word}


def record_of(evidence: str) -> list[str]:
    """The values of the fields, whatever sign and separator the record uses."""
    labels = "|".join(sorted({label for group in sparse.LABELS.values() for label in group}, key=len, reverse=True))
    return re.findall(rf"(?:^|[\n;,|:] ?)(?:{labels})(?:: | = | - )([\w-]+)(?=[;,|\n]| \||$)", evidence)


def hidden_by(kind: str, draft: Example) -> set[str] | None:
    """The words that the evidence has and the sentence has not."""
    evidence, seen = evidence_of(draft), visible(draft)
    if kind == "questions":
        values = re.findall(r"\? ([\w-]+)\.", evidence)
    elif kind == "bank":
        values = re.search(r"(?:sentence|list|each|bank): ([\w, ]+)", evidence)[1].split(", ")  # type: ignore[index]
    elif kind == "rows":
        lines = [line.split(": ")[-1] for line in evidence.splitlines()]
        rows = [re.split(r" \| |, | / ", line) for line in lines if len(re.split(r" \| |, | / ", line)) > 4][1:]
        assert len(rows) == (3 if draft.level == 3 else 4), draft.prompt
        fitting = [row for row in rows if len([w for w in row if w.lower() not in seen]) == 3]
        assert len(fitting) == 1, draft.prompt
        values = fitting[0]
    else:
        values = record_of(evidence)
        for old, new in corrections(evidence):
            assert values.count(old) == 1
            values[values.index(old)] = new
        if kind == "base":
            values = [in_context(value) for value in values]
    return {value.lower() for value in values if value.lower() not in seen}


def corrections(evidence: str) -> list[tuple[str, str]]:
    line = next((line for line in evidence.splitlines() if line.startswith("Corrections: ")), "")
    pairs = re.findall(r"not (\w+) but (\w+)", line) + re.findall(r"read (?P<new>\w+) for (?P<old>\w+)", line)
    if " for " in line:
        pairs = [(old, new) for new, old in pairs]
    return pairs + [(old, new) for new, old in re.findall(r"(\w+) instead of (\w+)", line)]


COUNTED = {noun: words.plural(noun) for noun in (*words.THINGS, *words.FOODS, *words.ANIMALS)}


def in_context(value: str) -> str:
    """All forms of a base form; a set joined by a bar, since a word may be both verb and noun."""
    if value.isdigit():
        return words.number_in_words(int(value))
    return "|".join(sorted({value, PAST.get(value, value), COUNTED.get(value, value)}))


@pytest.mark.parametrize("task", [sparse.TASK, sparse.CLUSTERED], ids=lambda task: task.name)
def test_the_missing_words_are_the_ones_the_evidence_adds(task: Task) -> None:
    counts = Counter()
    for draft in many(task):
        kind = str(draft.constraints["kind"])
        counts[kind] += 1
        answers = {part.lower() for part in draft.parts}
        assert len(answers) == 3
        assert draft.prompt.count("[1]") >= 2  # in the sentence and in the form of the answer
        if kind == "pieces":
            assert pieces_make(draft), draft.prompt
            continue
        added = hidden_by(kind, draft)
        if kind == "base":
            options = [set(value.split("|")) for value in added]
            assert all(any(answer in option for option in options) for answer in answers), draft.prompt
        elif draft.level == 2 and kind in ("record", "questions"):
            assert answers < added, draft.prompt
            assert len(added) <= 5
        else:
            assert answers == added, draft.prompt
    assert len(counts) == 7


def pieces_make(draft: Example) -> bool:
    """The pieces in the evidence are exactly the words of the sentence with the answers put in."""
    evidence = next(line for line in evidence_of(draft).splitlines() if re.search("order: |mixed: ", line))
    pieces = re.split(r" / | \| |; ", re.split("order: |mixed: ", evidence)[1].strip())
    whole = [word.strip(",.").lower() for word in str(draft.constraints["sentence"]).split()]
    return sorted(" ".join(pieces).lower().split()) == sorted(whole)


@pytest.mark.parametrize("task", [sparse.TASK, sparse.CLUSTERED], ids=lambda task: task.name)
def test_the_pieces_fit_in_one_way_only(task: Task) -> None:
    """Whatever the order of the pieces, the visible words allow one set of answers."""
    tried = 0
    cut_up = [draft for level in (2, 3) for draft in drafts(task, level, 250) if draft.constraints["kind"] == "pieces"]
    for draft in cut_up:
        evidence = next(line for line in evidence_of(draft).splitlines() if re.search("order: |mixed: ", line))
        pieces = re.split(r" / | \| |; ", re.split("order: |mixed: ", evidence)[1].strip())
        gaps = [word.strip(",.").lower() for word in sentence_of(draft).split()]
        fills = set()
        for order in permutations([piece.lower().split() for piece in pieces]):
            made = [word for piece in order for word in piece]
            if all(gap == word or "[" in gap for gap, word in zip(gaps, made, strict=True)):
                fills.add(tuple(word for gap, word in zip(gaps, made, strict=True) if "[" in gap))
        assert fills == {tuple(part.lower() for part in draft.parts)}, draft.prompt
        tried += 1
    assert tried > 60


def test_sparse_blanks_are_far_apart_and_clustered_ones_adjacent() -> None:
    for far, near in zip(many(sparse.TASK), many(sparse.CLUSTERED), strict=True):
        first, middle, last = far.constraints["positions"]
        length = len(str(far.constraints["sentence"]).split())
        assert 3 * first < length <= 3 * middle + length
        assert middle - first > 2
        assert last - middle > 2
        assert 3 * last >= 2 * length
        start = near.constraints["positions"][0]
        assert near.constraints["positions"] == [start, start + 1, start + 2]
        # "Liam gladly sold" could be "gladly Liam sold": such neighbours are never hidden together.
        if near.constraints["kind"] != "pieces" and set(near.parts) & set(words.MANNERS):
            people_and_looks = {*words.FIRST, *words.ADJECTIVES, *words.COLOURS, *words.MOODS} - {*PAST.values()}
            assert not set(near.parts) & people_and_looks


def test_the_control_has_the_same_sentences_evidence_and_number_of_blanks() -> None:
    for far, near in zip(many(sparse.TASK), many(sparse.CLUSTERED), strict=True):
        assert far.constraints["sentence"] == near.constraints["sentence"]
        assert far.prompt.replace(sentence_of(far), "") == near.prompt.replace(sentence_of(near), "")
        assert len(far.parts) == len(near.parts) == 3
