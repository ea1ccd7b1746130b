"""Where the prose around a program ends and the program begins, line by line.

A line is prose by its looks alone, never because the parser stumbles at it: a program with a mistake in it must not
become a right one by losing the line with the mistake. docs/tasks.md states the rule.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

# Marks of lists and quotations, back quotes, bold text, rules across the page, and the prompt of an interpreter.
_MARK = re.compile(r"[-*+•>]\s|[0-9]+[.)]\s|`|\*\*|-{3}|={3}|\*{3}|>>>")
_FIRST_WORD = re.compile(
    r"[\w'’-]*+(?:$|[.,:;!?…。，：；！？、]++(?:\s|$|[^\x00-\x7f])|\s++(?:[\w\"'`“‘«]|[-–—]\s)|[^\x00-\x7f\w])"
)
_ASSIGNS = re.compile(
    r"\w++(?:\s*+,\s*+\*?\w++)*+\s*+,?\s*+(?::\s*+[\w.]++(?:\[[^=]*\])?\s*+)?(?://|\*\*|<<|>>|[-+*/%&|^@])?=(?!=)"
)
_STATEMENT = re.compile(
    r"Import\s+[\w.]+(?:\s+as\s+\w+)?\s*(?:,|$)|From\s+[\w.]+\s+import\b|Def\s+\w+\s*\(|Class\s+\w+\s*[(:]"
)

_TOKEN = re.compile(
    r"#.*"
    r"|(?P<triple>\"\"\"|''')"
    r"|\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?"
    r"|(?P<bracket>[()\[\]{}])"
)
_CLOSING = {quote: re.compile(rf"(?:[^\\]|\\.)*?{quote}") for quote in ('"""', "'''")}


def is_prose(line: str) -> bool:
    """Whether a line at the left margin, outside strings and brackets, is text and not code.

    It begins like a sentence, with a capital letter or one beyond ASCII, or with a mark of lists or quotations. An
    assignment is code whatever it begins with, and so is a statement that is only spelt with a capital letter.
    """
    if not line or line[0].isspace():
        return False
    if _MARK.match(line):
        return True
    if not (line[0].isupper() or not line[0].isascii()) or _ASSIGNS.match(line) or _STATEMENT.match(line):
        return False
    return _FIRST_WORD.match(line, 1) is not None


def stretches(lines: Iterable[str]) -> list[list[str]]:
    """The stretches of code between lines of prose, every line as it is; none is empty."""
    found: list[list[str]] = [[]]
    nesting = _Nesting()
    for line in lines:
        if not nesting.inside and is_prose(line):
            found.append([])
        else:
            found[-1].append(line)
            nesting.read(line)
    return [stretch for stretch in found if any(line.strip() for line in stretch)]


@dataclass
class _Nesting:
    """What is open after the lines read so far: a long string, or brackets. There is no prose in either."""

    quote: str = ""
    brackets: list[str] = field(default_factory=list)

    @property
    def inside(self) -> bool:
        return bool(self.quote or self.brackets)

    def read(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self.quote:
                closing = _CLOSING[self.quote].match(line, at)
                if closing is None:
                    return
                at, self.quote = closing.end(), ""
                continue
            token = _TOKEN.search(line, at)
            if token is None:
                return
            at, self.quote = token.end(), token["triple"] or ""
            if token["bracket"]:
                self._turn(token["bracket"])

    def _turn(self, bracket: str) -> None:
        if bracket in "([{":
            self.brackets.append(bracket)
        elif self.brackets:
            self.brackets.pop()
