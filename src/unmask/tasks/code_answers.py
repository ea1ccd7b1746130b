"""Find the Python code in an answer that completes a function, and run it against the function's tests.

A model may continue the function, repeat it whole, put either into a block of code, and explain itself before and
after. Lines that look like prose are cut off; every line of the code stays, and code that is not valid Python fails. A
line is never cut because the parser stumbles at it: a program with a mistake must not become a right one by losing the
line with the mistake. docs/tasks.md states the rule.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unmask.base.files import storable
from unmask.tasks import extract, sandbox
from unmask.tasks.extract import CODE_FENCE, NOTHING, WHOLE_TEXT, RawAnswer
from unmask.tasks.task import TEXT_LIMIT, TOO_LONG, Answers, Example, Extraction, OnVerdict, Part, Verdict

CODE_LIMIT = 1 << 15
"""Longest code that is run, in characters; longer code scores 0."""
INDENT = "    "
"""Indentation of the body of the function that the head begins."""
_FENCE = re.compile(r"[ \t]*+(?:```|~~~)[ \t]*+([^`\s]*+)[^`\n]*+")


# Verdicts


def score_programs(answers: Answers, workers: int, on_verdict: OnVerdict) -> list[Verdict]:
    """Score outputs that complete functions by running their tests, several programs at a time.

    Utility is 1 if all tests pass, and 0 for a wrong answer, an error or a timeout. If the sandbox itself fails, there
    is no utility. Verdicts come in the order of the outputs.
    """
    verdicts: dict[int, Verdict] = {}
    waiting: list[int] = []
    completions = []
    for at, (text, example) in enumerate(answers):
        head, entry = (str(example.constraints[key]) for key in ("prompt", "entry_point"))
        completion = find_completion(text, head, entry)
        completions.append(completion)
        if completion.normalised:
            # Not run yet: `check_completions` runs all programs of the batch side by side.
            waiting.append(at)
            continue
        long = f"{len(completion.extracted)} characters of code; at most {CODE_LIMIT} are read"
        reason = long if completion.how == TOO_LONG else "no code"
        verdicts[at] = Verdict(example.id, 0.0, reason, completion, (Part("tests", "pass", None, False),))
        on_verdict(verdicts[at])

    def store_result(number: int, result: sandbox.SandboxResult) -> None:
        at = waiting[number]
        passed = result.status == "pass"
        utility = None if result.status == "unavailable" else float(passed)
        # What the program raised, in its own words.
        reason = storable(f"{result.status}: {result.detail}" if result.detail else result.status)
        parts = (Part("tests", "pass", result.status, passed),)
        verdicts[at] = Verdict(answers[at][1].id, utility, reason, completions[at], parts)
        on_verdict(verdicts[at])

    sandbox.check_completions(
        [(answers[at][1].constraints, completions[at].normalised) for at in waiting], workers, store_result
    )
    return [verdicts[at] for at in range(len(answers))]


def score_program(text: str, example: Example) -> Verdict:
    """Score one output that completes a function, by running its tests."""
    return score_programs([(text, example)], 1, lambda verdict: None)[0]


# Code in a text


def find_completion(text: str, head: str, entry: str) -> Extraction:
    """Find the code to append to `head`, which ends inside the function `entry`, to get a program.

    `normalised` is the text to append; it is empty if there is no code at all.
    """
    if len(text) > TEXT_LIMIT:
        return Extraction(text, TOO_LONG, "", "")
    marked = find_code(text.replace("\r\n", "\n").replace("\r", "\n"), entry)
    if not marked.text.strip():
        return Extraction(text, NOTHING, "", "")
    if len(marked.text) > CODE_LIMIT:
        return Extraction(text, TOO_LONG, marked.text, "")
    return Extraction(text, marked.how, marked.text, _choose_indentation(marked.text, head, entry))


def find_code(text: str, entry: str) -> RawAnswer:
    """Find the code in a text: inside answer tags, a block of code or both, else all lines that are not prose."""
    answer = extract.find_tagged_answer(text, strip=False) or RawAnswer(WHOLE_TEXT, text)
    lines = answer.text.split("\n")
    marks = [(number, mark[1]) for number, line in enumerate(lines) if (mark := _FENCE.fullmatch(line))]
    if not marks:
        return RawAnswer(answer.how, _find_code_in_prose(lines, entry))
    how = CODE_FENCE if answer.how == WHOLE_TEXT else answer.how
    first, language = marks[0]
    if len(marks) == 1 and not language and any(line.strip() for line in lines[:first]):
        # The mark that opened the block was given to the model, and this one closes it.
        return RawAnswer(how, _find_code_in_prose(lines[:first], entry))
    numbers = [number for number, _ in marks]
    blocks = ["\n".join(lines[a + 1 : b]) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
    if len(numbers) % 2:
        # Never closed: what follows may be code and then prose.
        blocks.append(_find_code_in_prose(lines[numbers[-1] + 1 :], entry))
    return RawAnswer(how, _choose_code(blocks, entry))


def _find_code_in_prose(lines: Sequence[str], entry: str) -> str:
    return _choose_code(["\n".join(stretch) for stretch in find_code_stretches(lines)], entry)


def _choose_code(pieces: Sequence[str], entry: str) -> str:
    """Return the last piece of code that defines the function, else the first that is not empty."""
    defining = [piece for piece in pieces if _defines_function(piece, entry)]
    return defining[-1] if defining else next((piece for piece in pieces if piece.strip()), "")


def _defines_function(code: str, entry: str, indent: str = r"[ \t]*") -> bool:
    return re.search(rf"^{indent}(?:async[ \t]+)?def[ \t]+{re.escape(entry)}[ \t]*\(", code, re.MULTILINE) is not None


def _choose_indentation(code: str, head: str, entry: str) -> str:
    """Indent the code so that it parses as Python after the head; if nothing does, take the likeliest indentation."""
    joint = "" if head.endswith("\n") else "\n"
    # Parsed together with the head, because a body alone is no Python.
    readings = [joint + text for text in _indentation_variants(code, entry)]
    return next((text for text in readings if _is_python(head, text)), readings[0])


def _indentation_variants(code: str, entry: str) -> Iterator[str]:
    """Yield the code with each indentation that the model may have meant, the likeliest first."""
    lines = code.rstrip().split("\n")
    while not lines[0].strip():
        del lines[0]
    flat = textwrap.dedent("\n".join(lines))
    whole = _defines_function(flat, entry, indent="")
    if whole:
        # A function that is defined again replaces the one in the head.
        yield f"{flat}\n"
    if lines[0][0] in " \t":
        yield _reindent(lines)
        return
    # The first line has lost its indentation to a tokenizer or to `strip`.
    margins = [_leading_spaces(line) for line in lines if line.strip() and line[0] in " \t"]
    yield _reindent([min(margins, key=len, default=INDENT) + lines[0], *lines[1:]])
    if not whole:
        # All lines have.
        yield textwrap.indent("\n".join(lines), INDENT) + "\n"


def _reindent(lines: Sequence[str]) -> str:
    """Replace the indentation that all lines share by the indentation of a function body."""
    margin = _leading_spaces(lines[0])
    if not all(line.startswith(margin) for line in lines if line[:1] in (" ", "\t") and line.strip()):
        margin = INDENT
    return "".join((INDENT + line[len(margin) :] if line.startswith(margin) else line) + "\n" for line in lines)


def _leading_spaces(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_python(head: str, text: str) -> bool:
    """Return whether head and text together parse as Python with no `return`, `yield` or `await` outside a function."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An odd escape in a string is the model's business.
            tree = ast.parse(head + text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return not any(_has_outer_return(node) for node in tree.body)


def _has_outer_return(statement: ast.stmt) -> bool:
    """Return whether a statement holds a `return`, `yield` or `await` outside any function inside it."""
    # A list of what is left to see, not recursion: a model may nest deeper than Python likes to call.
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return False


# Prose

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
    """Return whether an unindented line, outside strings and brackets, is prose and not code.

    Prose begins like a sentence, with a capital letter or one beyond ASCII, or with a mark of lists or quotations. An
    assignment is code whatever it begins with, and so is a statement with a wrong capital letter (`Import os`).
    """
    if not line or line[0].isspace():
        return False
    if _MARK.match(line):
        return True
    if not (line[0].isupper() or not line[0].isascii()) or _ASSIGNS.match(line) or _STATEMENT.match(line):
        return False
    return _FIRST_WORD.match(line, 1) is not None


def find_code_stretches(lines: Iterable[str]) -> list[list[str]]:
    """Group lines into stretches of code, which lines of prose separate. Lines stay as they are."""
    found: list[list[str]] = [[]]
    nesting = _Nesting()
    for line in lines:
        if not nesting.is_inside and is_prose(line):
            found.append([])
        else:
            found[-1].append(line)
            nesting.read_line(line)
    return [stretch for stretch in found if any(line.strip() for line in stretch)]


@dataclass
class _Nesting:
    """Triple-quoted string or brackets that are still open after the lines read so far."""

    quote: str = ""
    depth: int = 0

    @property
    def is_inside(self) -> bool:
        return bool(self.quote) or self.depth > 0

    def read_line(self, line: str) -> None:
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
            if token["bracket"] and token["bracket"] in "([{":
                self.depth += 1
            elif token["bracket"]:
                self.depth = max(0, self.depth - 1)
