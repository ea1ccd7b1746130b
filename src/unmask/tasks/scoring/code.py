"""From what a model wrote to the Python that completes a function.

A model may continue the function, repeat it whole, put either into a block of code, and explain itself before and
after. Prose is cut by its looks (`prose`), code never: every line of the stretch that is taken for code stays, and
what is no Python as it is written fails. Nothing is executed here.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence

from unmask.tasks import extract
from unmask.tasks.extract import CODE_FENCE, NOTHING, WHOLE_TEXT, RawAnswer
from unmask.tasks.scoring.prose import stretches
from unmask.tasks.task import TEXT_LIMIT, TOO_LONG, Extraction

CODE_LIMIT = 1 << 15
"""Characters. Longer code is not looked at."""

_FENCE = re.compile(r"[ \t]*+(?:```|~~~)[ \t]*+([^`\s]*+)[^`\n]*+")
_INDENT = "    "
"""Of the function that the head begins."""


def completion(text: str, head: str, entry: str) -> Extraction:
    """What to append to `head`, which ends inside the function `entry`, to get a program.

    `normalised` is the text to append; it is empty if there is no code at all.
    """
    if len(text) > TEXT_LIMIT:
        return Extraction(text, TOO_LONG, "", "")
    marked = find_code(text.replace("\r\n", "\n").replace("\r", "\n"), entry)
    if not marked.text.strip():
        return Extraction(text, NOTHING, "", "")
    if len(marked.text) > CODE_LIMIT:
        return Extraction(text, TOO_LONG, marked.text, "")
    return Extraction(text, marked.how, marked.text, _append(marked.text, head, entry))


def find_code(text: str, entry: str) -> RawAnswer:
    """The part of a text that is code: marked by answer tags, by a block of code or by both, or what is no prose."""
    answer = extract.find_tagged(text, strip=False) or RawAnswer(WHOLE_TEXT, text)
    lines = answer.text.split("\n")
    marks = [(number, mark[1]) for number, line in enumerate(lines) if (mark := _FENCE.fullmatch(line))]
    if not marks:
        return RawAnswer(answer.how, _without_prose(lines, entry))
    how = CODE_FENCE if answer.how == WHOLE_TEXT else answer.how
    first, language = marks[0]
    if len(marks) == 1 and not language and any(line.strip() for line in lines[:first]):
        # The mark that opened the block was given to the model, and this one closes it.
        return RawAnswer(how, _without_prose(lines[:first], entry))
    numbers = [number for number, _ in marks]
    blocks = ["\n".join(lines[a + 1 : b]) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
    if len(numbers) % 2:
        # Never closed: what follows may be code and then prose.
        blocks.append(_without_prose(lines[numbers[-1] + 1 :], entry))
    return RawAnswer(how, _choose(blocks, entry))


def _without_prose(lines: Sequence[str], entry: str) -> str:
    return _choose(["\n".join(stretch) for stretch in stretches(lines)], entry)


def _choose(pieces: Sequence[str], entry: str) -> str:
    """The last piece that defines the function, else the first that is not empty."""
    defining = [piece for piece in pieces if _defines(piece, entry)]
    return defining[-1] if defining else next((piece for piece in pieces if piece.strip()), "")


def _defines(code: str, entry: str, indent: str = r"[ \t]*") -> bool:
    return re.search(rf"^{indent}(?:async[ \t]+)?def[ \t]+{re.escape(entry)}[ \t]*\(", code, re.MULTILINE) is not None


def _append(code: str, head: str, entry: str) -> str:
    """The first reading that is Python; if none is, the first reading, so that the failure is seen for what it is."""
    joint = "" if head.endswith("\n") else "\n"
    readings = [joint + text for text in _readings(code, entry)]
    return next((text for text in readings if _is_python(head, text)), readings[0])


def _readings(code: str, entry: str) -> Iterator[str]:
    """Ways to take code, likeliest first. They differ in indentation and in nothing else."""
    lines = code.rstrip().split("\n")
    while not lines[0].strip():
        del lines[0]
    flat = textwrap.dedent("\n".join(lines))
    whole = _defines(flat, entry, indent="")
    if whole:
        # A function that is defined again replaces the one in the head.
        yield f"{flat}\n"
    if lines[0][0] in " \t":
        yield _shifted(lines)
        return
    # The first line has lost its indentation to a tokenizer or to `strip`.
    margins = [_margin(line) for line in lines if line.strip() and line[0] in " \t"]
    yield _shifted([min(margins, key=len, default=_INDENT) + lines[0], *lines[1:]])
    if not whole:
        # All lines have.
        yield textwrap.indent("\n".join(lines), _INDENT) + "\n"


def _shifted(lines: Sequence[str]) -> str:
    """The lines with the margin of the first one turned into that of the function; as they are if it is not common."""
    margin = _margin(lines[0])
    if not all(line.startswith(margin) for line in lines if line[:1] in (" ", "\t") and line.strip()):
        margin = _INDENT
    return "".join((_INDENT + line[len(margin) :] if line.startswith(margin) else line) + "\n" for line in lines)


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_python(head: str, text: str) -> bool:
    """Whether head and text are a program, and nothing that belongs into a function stands outside of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An odd escape in a string is the model's business.
            tree = ast.parse(head + text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return not any(_returns(node) for node in tree.body)


def _returns(statement: ast.stmt) -> bool:
    """Whether a statement returns from, or yields in, a function that is not inside it."""
    # A list of what is left to see, not recursion: a model may nest deeper than Python likes to call.
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return False
