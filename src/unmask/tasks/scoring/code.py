"""From what a model wrote to the Python that completes a function.

A model may continue the function, repeat it whole, put either into a block of code, and explain itself before and
after. The parser decides: of several ways to read the text, the first that is Python together with the given
beginning is taken. Nothing is executed here.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unmask.tasks.base import TEXT_LIMIT, TOO_LONG, Extraction
from unmask.tasks.scoring import extract
from unmask.tasks.scoring.extract import CODE_FENCE, NOTHING, WHOLE_TEXT, RawAnswer

CODE_LIMIT = 1 << 15
"""Characters. A longer completion is not looked at."""
CUTS = 16
"""How often the end of a text is cut off in search of where the code stops."""

_FENCE = re.compile(r"[ \t]*+(?:```|~~~)[ \t]*+([^`\s]*+)[^`\n]*+")
_STARTS_CODE = re.compile(
    r"import\s+[\w.]|from\s+[\w.]+\s+import\b|(?:async\s+)?def\s+\w+\s*\(|class\s+\w|@\w|\w+\s*=[^=]"
)


def completion(text: str, head: str, entry: str) -> Extraction:
    """What to append to `head`, which ends inside the function `entry`, to get a program.

    `normalised` is the text to append; it is empty if there is no code at all.
    """
    if len(text) > TEXT_LIMIT:
        return Extraction(text, TOO_LONG, "", "")
    # A lone surrogate has no place in a file, and a program is one.
    clean = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    marked = find_code(clean, entry)
    if not marked.text.strip():
        return Extraction(text, NOTHING, "", "")
    if len(marked.text) > CODE_LIMIT:
        return Extraction(text, TOO_LONG, "", "")
    return Extraction(text, marked.how, marked.text, _append(marked.text, head, entry))


def find_code(text: str, entry: str) -> RawAnswer:
    """The part of a text that is marked as code: by answer tags, by a block of code, or by both."""
    answer = extract.tagged(text, strip=False) or RawAnswer(WHOLE_TEXT, text)
    block = _block(answer.text, entry)
    if block is None:
        return answer
    return RawAnswer(CODE_FENCE if answer.how == WHOLE_TEXT else answer.how, block)


def _block(text: str, entry: str) -> str | None:
    """The last block of code that defines the function, else the first block; None if there is no block."""
    lines = text.split("\n")
    marks = [(number, mark[1]) for number, line in enumerate(lines) if (mark := _FENCE.fullmatch(line))]
    if len(marks) == 1 and not marks[0][1] and any(line.strip() for line in lines[: marks[0][0]]):
        # The mark that opened the block was given to the model, and this one closes it.
        return "\n".join(lines[: marks[0][0]])
    if not marks:
        return None
    numbers = [number for number, _ in marks] + [len(lines)]
    blocks = ["\n".join(lines[a + 1 : b]) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
    defining = [block for block in blocks if _defines(block, entry)]
    return defining[-1] if defining else next((block for block in blocks if block.strip()), "")


def _defines(code: str, entry: str) -> bool:
    return re.search(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(entry)}[ \t]*\(", code, re.MULTILINE) is not None


@dataclass(frozen=True)
class _Reading:
    """One way to take a text as the continuation of the head."""

    text: str
    prose: Callable[[list[str], int], bool]
    """Whether prose may begin at a line, so that the rest can be cut off if the parser stumbles there."""


def _at_margin(lines: list[str], number: int) -> bool:
    """Prose begins at the left margin. A line inside a function is never cut: a mistake there is the model's."""
    return bool(lines[number][:1].strip())


def _after_gap(lines: list[str], number: int) -> bool:
    """Where the margin is lost because the code stood at it, prose begins after an empty line."""
    line = lines[number]
    return line[:4] == "    " and bool(line[4:5].strip()) and not lines[number - 1].strip()


def _append(code: str, head: str, entry: str) -> str:
    """The first reading that is Python; if none is, the first reading, so that the failure is seen for what it is."""
    readings = list(_readings(code, entry))
    kept = (_python(head, reading) for reading in readings)
    return next((text for text in kept if text is not None), readings[0].text)


def _readings(code: str, entry: str) -> Iterator[_Reading]:
    """Ways to take a text, likeliest first. A function that is defined again replaces the one in the head."""
    lines = code.strip("\n").rstrip().split("\n")
    while not lines[0].strip():
        del lines[0]
    if _defines(code, entry):
        dedented = textwrap.dedent("\n".join(lines)).split("\n")
        starts = [number for number, line in enumerate(dedented) if _STARTS_CODE.match(line)]
        defining = [number for number in starts if _defines(dedented[number], entry)]
        for start in sorted({*starts[:1], *defining[:1]}):
            yield _Reading("\n" + "\n".join(dedented[start:]), _at_margin)
    # The lines as they are; the first may have lost its indentation to a tokenizer or to `strip`.
    yield _Reading("\n".join(["    " + lines[0].strip(), *lines[1:]]), _at_margin)
    # All lines are indented alike, whatever by.
    yield _Reading(_indented(lines), _after_gap)
    # A sentence, then indented lines, then perhaps another sentence.
    body = next((number for number, line in enumerate(lines) if line[:1] in (" ", "\t") and line.strip()), len(lines))
    rest = lines[body:]
    end = next((number for number in range(len(rest)) if _at_margin(rest, number)), len(rest))
    if end:
        yield _Reading(_indented(rest[:end]), _at_margin)


def _indented(lines: list[str]) -> str:
    return textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")


def _python(head: str, reading: _Reading) -> str | None:
    """The reading without prose after its code; None if it is not Python."""
    lines = reading.text.split("\n")
    above = head.count("\n")
    for _ in range(CUTS):
        tree = _tree(head + "\n".join(lines) + "\n")
        if isinstance(tree, ast.Module):
            return _statements(tree, lines, above)
        if tree is None:
            return None
        cuts = [number for number in range(1, min(tree - above, len(lines))) if reading.prose(lines, number)]
        if not cuts or not any(line.strip() for line in lines[: cuts[-1]]):
            return None
        del lines[cuts[-1] :]
    return None


def _tree(source: str) -> ast.Module | int | None:
    """The syntax tree, or the line where the parser stumbled, or None if it gave up."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An odd escape in a string is the model's business.
            return ast.parse(source)
    except SyntaxError as error:
        return error.lineno
    except (ValueError, MemoryError, RecursionError):
        return None


def _statements(tree: ast.Module, lines: list[str], above: int) -> str | None:
    """What follows the head, without statements that only look like Python; None if the body fell out of its function.

    A word or two of prose parses as names; what stands under `if __name__ == "__main__"` is for a person.
    """
    kept: list[str] = []
    for node in tree.body:
        first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))]) - above
        last = (node.end_lineno or node.lineno) - above
        if last < 1:
            continue
        if first >= 1 and _returns(node):
            return None
        if first < 1 or _does_something(node):
            kept += lines[max(first, 1) - 1 : last]
    return "\n".join(kept) + "\n" if kept else None


def _does_something(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    return not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and _is_name(node.test.left))


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "__name__"


def _returns(statement: ast.stmt) -> bool:
    """Whether a statement returns from a function that is not inside it."""
    # A list of what is left to see, not recursion: a model may nest deeper than Python likes to call.
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            nodes += ast.iter_child_nodes(node)
    return False
