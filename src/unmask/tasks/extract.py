r"""Find the answer in the output of a model, and read it.

`find_answer` takes, in this order: the inside of the last complete `<answer>...</answer>`; the text after an unclosed
`<answer>` (generation ran out of room) or before an unopened `</answer>` (the tag was given to the model); the inside
of the last `\boxed{...}`; the last line that is not empty. One `parse_...` function per kind of answer then reads it.

Every function takes time linear in the text, whatever the text is, and none raises. Repetition inside a pattern is
possessive (`*+`) or follows a fixed character, so that no output, however hostile, makes a pattern backtrack.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from unmask.base.json_files import refuse_constant
from unmask.tasks.draw import Json, canonical_json

JSON_DEPTH = 64
"""Deepest nesting of a JSON text, in levels."""
REREAD_FACTOR = 4
"""Limit on the characters that the search for a JSON object may read, in lengths of the text."""
MAX_DIGITS = 100
"""Longest run of digits that is read as a number."""

# Names of the rules that find answers. Verdicts record them.

ANSWER_TAG = "answer tag"
OPEN_TAG = "open answer tag"
BOXED = "boxed"
LAST_LINE = "last line"
WHOLE_TEXT = "whole text"
HASHES = "#### line"
CODE_FENCE = "code fence"
FILLED_BLANKS = "filled blanks"
NOTHING = "nothing"


@dataclass(frozen=True)
class RawAnswer:
    """An answer as it stands in the output, and the name of the rule that found it."""

    how: str
    text: str


_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE | re.ASCII)
_BRACE = re.compile(r"\\boxed\s*+\{|\\.|[{}]", re.DOTALL)


def find_answer(text: str) -> RawAnswer:
    """Find the answer in a text: inside tags, else in a box, else on the last line."""
    return find_tagged_answer(text) or _find_boxed_answer(text) or _find_last_line(text)


def find_tagged_answer(text: str, strip: bool = True) -> RawAnswer | None:
    """Find the text inside answer tags; return None if there are no tags."""
    pair: tuple[int, int] | None = None
    opened: int | None = None
    closed: int | None = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            # A later complete pair replaces this one: a model that corrects itself is taken at its last word.
            pair, opened = (opened, tag.start()), None
        elif closed is None:
            closed = tag.start()
    if pair:
        how, inside = ANSWER_TAG, text[slice(*pair)]
    elif opened is not None:
        how, inside = OPEN_TAG, text[opened:]
    elif closed is not None:
        how, inside = OPEN_TAG, text[:closed]
    else:
        return None
    return RawAnswer(how, inside.strip() if strip else inside)


def _find_boxed_answer(text: str) -> RawAnswer | None:
    r"""Find the content of the last closed `\boxed{...}`. Of two nested boxes the inner one is the later."""
    if "\\boxed" not in text:
        return None
    last: tuple[int, int] | None = None
    opened: list[tuple[int, bool]] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "}":
            if opened:
                start, box = opened.pop()
                # Boxes close from the inside out, so the later one is told by where it begins.
                if box and (last is None or start > last[0]):
                    last = (start, brace.start())
        elif brace[0].endswith("{") and brace[0] != "\\{":
            opened.append((brace.end(), brace[0] != "{"))
    return RawAnswer(BOXED, text[slice(*last)].strip()) if last else None


def _find_last_line(text: str) -> RawAnswer:
    """Find the last line that is neither empty nor the mark around a block of code."""
    for line in reversed(text.splitlines()):
        if (kept := line.strip()) and not kept.startswith("```"):
            return RawAnswer(LAST_LINE, kept)
    return RawAnswer(NOTHING, "")


def normalise_spaces(text: str) -> str:
    """Replace runs of whitespace by one space, and drop whitespace at both ends."""
    return " ".join(text.split())


def normalise_text(text: str) -> str:
    """Normalise whitespace and case, which make no difference to part credit, Eq. (eq:part_credit)."""
    return normalise_spaces(text).casefold()


# Indexed spans: [1]=gate; [2]=courier

_SPAN = re.compile(r"\[\s*+([0-9]{1,4})\s*+\]\s*+=")
_SPAN_END = re.compile(r"[;\n\r]")


def parse_spans(text: str) -> Mapping[int, tuple[str, ...]]:
    """Read numbered values such as `[1]=gate; [2]=courier`: the different values of each number.

    A value ends at a semicolon, at the end of its line or at the next index; it may start on the next line. Different
    values for one index are all returned, so that the scorer can refuse an answer that hedges.
    """
    marks = list(_SPAN.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    values_by_index: dict[int, dict[str, str]] = {}
    for mark, end in zip(marks, ends, strict=False):
        value = normalise_spaces(_SPAN_END.split(text[mark.end() : end].lstrip(), maxsplit=1)[0])
        values_by_index.setdefault(int(mark[1]), {}).setdefault(value.casefold(), value)
    return MappingProxyType({index: tuple(values.values()) for index, values in sorted(values_by_index.items())})


def write_spans(parts: Sequence[str]) -> str:
    """Write the answers to numbered blanks as `[1]=gate; [2]=courier`."""
    return "; ".join(f"[{index}]={part}" for index, part in enumerate(parts, start=1))


# Texts with blanks: The [MASK] sat on the [MASK*3].

_BLANKS = re.compile(r"(?:\[MASK(?:\*[0-9]+)?\])++")


def cut_at_blanks(text: str) -> tuple[list[str], list[int]]:
    """Cut a text at its runs of blanks; return the pieces around them and the number of blanks in each run."""
    runs = _BLANKS.findall(text)
    return _BLANKS.split(text), [sum(int(n or 1) for n in re.findall(r"\[MASK(?:\*([0-9]+))?\]", run)) for run in runs]


# Lists: cat, dog, elk


def parse_items(text: str) -> tuple[str, ...]:
    """Read the items of a comma-separated list. One comma may stand at its end."""
    parts = [normalise_spaces(item) for item in text.split(",")]
    return tuple(parts if parts[-1] else parts[:-1])


# Closing tags: </em></p>

_CLOSING = re.compile(r"\s*+</\s*+([a-z][a-z0-9:-]*+)\s*+>\s*+", re.IGNORECASE | re.ASCII)


def parse_closing_tags(text: str) -> tuple[str, ...] | None:
    """Read the names in a sequence of closing tags, in lower case; return None if the text holds anything else."""
    names = []
    at = 0
    while at < len(text):
        tag = _CLOSING.match(text, at)
        if tag is None:
            return None
        names.append(tag[1].lower())
        at = tag.end()
    return tuple(names)


# Numbers: $1,234.50, 25%, -3, 1/2

_HASHES = re.compile(r"^[ \t]*+####([^\n]*)", re.MULTILINE)
_FRAC = re.compile(r"\\[dt]?frac\s*+\{\s*+([0-9]{1,100})\s*+\}\s*+\{\s*+([0-9]{1,100})\s*+\}")
# A minus belongs to the number unless something it could be subtracted from touches it on the left.
_NUMBER = re.compile(
    r"(?P<minus>(?<![\w)\]}%])[-−–])?(?:[$€£¥₹](?P<minus2>-)?)?"
    r"(?:(?P<whole>[0-9][0-9,]*+)(?P<point>\.[0-9]++)?+|(?P<bare>\.[0-9]++))"
    r"(?:[eE](?P<power>[-+]?[0-9]{1,2})(?![0-9A-Za-z]))?"
    r"(?:\s?/\s?(?P<below>[0-9]++)(?!\.[0-9]))?"
)
_DIGIT = re.compile(r"[0-9]")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})++")


def parse_number(text: str) -> Fraction | None:
    """Read the last number of a text exactly: 1,234.50 and 1234.5 are the same number, and so are 1/2 and 0.5.

    Currency signs, percent signs and units are passed over. Commas group digits by three; any other comma separates
    two numbers.
    """
    last = None
    for last in _NUMBER.finditer(_replace_tex(text)):  # noqa: B007 (the last match is what is wanted)
        pass
    return _to_fraction(last) if last else None


def _replace_tex(text: str) -> str:
    """Replace TeX's spellings of commas, currency and fractions by plain ones."""
    if "\\" not in text and "{,}" not in text:
        return text
    text = text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$").replace("\\%", "%")
    return _FRAC.sub(r"\1/\2", text)


def _to_fraction(match: "re.Match[str]") -> Fraction | None:
    # A comma at the end is punctuation.
    whole = (match["whole"] or "0").rstrip(",")
    point, below = match["point"] or match["bare"] or "", match["below"] or "1"
    negative = bool(match["minus"] or match["minus2"])
    if _GROUPED.fullmatch(whole):
        whole = whole.replace(",", "")
    elif "," in whole:
        # 3,5 is a list, and a sign in front of it belongs to its first number.
        whole, negative = whole.rpartition(",")[2], False
    # Fractions are exact, so their digits must be bounded: arithmetic with huge ones takes minutes.
    if max(len(whole), len(point), len(below)) > MAX_DIGITS or int(below) == 0:
        return None
    value = Fraction(whole + point) * Fraction(10) ** int(match["power"] or 0) / int(below)
    return -value if negative else value


def find_number(text: str) -> RawAnswer:
    """Find the final number: inside tags, in a box, on the last line `#### NUMBER`, or on the last line with a digit.

    A line that begins with #### and holds more than a number is a heading of Markdown, such as "#### Step 2".
    """
    if answer := find_tagged_answer(text) or _find_boxed_answer(text):
        return answer
    for mark in reversed(_HASHES.findall(text)):
        if _NUMBER.fullmatch(_replace_tex(mark).strip().rstrip(".% ")):
            return RawAnswer(HASHES, mark.strip())
    for line in reversed(text.splitlines()):
        if _DIGIT.search(line):
            return RawAnswer(LAST_LINE, line.strip())
    return _find_last_line(text)


# JSON objects


@dataclass(frozen=True)
class ParsedJson:
    """A JSON value and the text that it was read from, or the problem with that text."""

    value: Json
    text: str
    problem: str = ""


_STRING_OR_BRACE = re.compile(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|\\.|[{}]', re.DOTALL)
_OBJECT_START = re.compile(r'\{\s*+"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"\s*+:', re.DOTALL)
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def find_json_object(text: str) -> RawAnswer:
    """Find the text with the JSON object: inside answer tags, in a box, else the whole output."""
    return (
        find_tagged_answer(text)
        or _find_boxed_answer(text)
        or RawAnswer(WHOLE_TEXT if text.strip() else NOTHING, text.strip())
    )


def parse_json_object(text: str) -> ParsedJson:
    """Read a text as a JSON object, or else read the last JSON object that stands in it.

    The object may stand in a block of code or between prose. If an object is broken or cut short, no object inside it
    is taken for the answer. A brace that does not begin an object is prose, and the search goes on behind it; the
    number of characters that are read again is limited.
    """
    whole = parse_json_value(text)
    if not whole.problem:
        return whole if isinstance(whole.value, dict) else ParsedJson(None, whole.text, "JSON, but not an object")
    last = whole
    at = 0
    budget = REREAD_FACTOR * len(text)
    while budget > 0 and (start := text.find("{", at)) >= 0:
        end = _find_closing_brace(text, start)
        inner = parse_json_value(text[start:end]) if end else last
        # Every reading is paid for by its length, so that hostile braces cannot make this quadratic.
        budget -= (end or len(text)) - start
        if end and isinstance(inner.value, dict):
            last, at = inner, end
        elif not _OBJECT_START.match(text, start):
            at = start + 1
        elif end:
            at = end
        else:
            break
    return last


def _find_closing_brace(text: str, start: int) -> int | None:
    """Return the end of the object that begins at `start`; None if it is not closed. Braces in strings do not count."""
    depth = 0
    for token in _STRING_OR_BRACE.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def parse_json_value(text: str) -> ParsedJson:
    """Read a JSON value strictly: no NaN, no infinity, no trailing commas, no deep nesting."""
    text = text.strip()
    if _is_too_deep(text):
        return ParsedJson(None, text, f"JSON nested more than {JSON_DEPTH} levels deep")
    try:
        return ParsedJson(_DECODER.decode(text), text)
    except (ValueError, RecursionError) as error:
        return ParsedJson(None, text, f"not JSON ({error})" if text else "empty")


def _is_too_deep(text: str) -> bool:
    # The usual case, without a scan: fewer brackets than levels cannot nest too deeply.
    if text.count("{") + text.count("[") <= JSON_DEPTH:
        return False
    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > JSON_DEPTH:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False


def _parse_finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


# A repeated key does not make an answer invalid: its last value counts, as the model's last word.
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_parse_finite_float)


def spell_json(value: Json) -> str:
    """Write a JSON value as verdicts show it: keys sorted, and 1.0 written as 1."""
    return canonical_json(_whole_floats_to_integers(value))


def _whole_floats_to_integers(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole_floats_to_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole_floats_to_integers(item) for item in value]
    return value
