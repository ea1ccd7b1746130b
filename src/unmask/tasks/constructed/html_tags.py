"""HTML Close Tags: a prefix of nested elements, and the closing tags that are still missing.

A model that only reverses a list of names finds this easy, so from level 2 on there are names it has never seen
(custom elements), and from level 3 on tags that must not be closed: elements already closed, void elements,
comments, and tags quoted in attributes.
"""

from unmask.tasks import scorers
from unmask.tasks.constructed.common import check_level
from unmask.tasks.draw import Draw
from unmask.tasks.splits import constructed
from unmask.tasks.task import Example, Scorer
from unmask.tasks.words import (
    ADJECTIVES,
    ANIMALS,
    COLOURS,
    FIRST,
    GOODS,
    IDEAS,
    JOBS,
    PLANTS,
    SITES,
    closing,
    invented,
    place_name,
)
from unmask.tasks.words.text import words

LIMIT = 84
"""Characters of the answer, so that it fits the horizon in a small vocabulary."""
TOKENS = 40
"""The same in tokens, counted as pieces of three letters and pairs of marks: long names cost more than brackets."""

_BLOCKS = words("div section article main aside nav header footer figure form fieldset details blockquote body")
_LEAVES = words("p h1 h2 h3 h4 h5 h6 pre address summary legend figcaption")
_INLINE = words("span em strong b i u a code small sub sup mark q cite abbr kbd samp var dfn s ins del time data label")
# Each of these needs the ones before it around it.
_LADDERS = (
    ("ul", "li"),
    ("ol", "li"),
    ("menu", "li"),
    ("dl", "dt"),
    ("dl", "dd"),
    ("table", "tbody", "tr", "td"),
    ("table", "thead", "tr", "th"),
    ("table", "tr", "td"),
    ("select", "option"),
    ("video",),
    ("button",),
)
_SUFFIXES = words("card list box item panel page view row cell menu bar grid map note link tab form feed tile label")
_VOID = (
    "<br>",
    "<br/>",
    '<img src="{thing}.png">',
    '<img alt="{thing}" src="{n}.jpg">',
    '<input name="{thing}">',
    "<wbr>",
    '<img src="{thing}.png" alt="{animal}"/>',
)
_ATTRIBUTES = (
    'class="{adjective}"',
    'id="{thing}"',
    'id="{thing}{n}"',
    'lang="en"',
    'title="{adjective} {thing}"',
    'data-{thing}="{n}"',
    "hidden",
    'class="{adjective} {colour}"',
    'style="color:{colour}"',
    'title="{name}"',
    'data-key="{code}"',
)
_TRAPS = (
    'title="<{tag}>"',
    'data-note="</{tag}>"',
    'title="a > b"',
    "data-html='<{tag}>{thing}</{tag}>'",
)
_COMMENTS = (
    "<!-- {thing} -->",
    "<!-- <{tag}> -->",
    "<!-- </{tag}> -->",
    "<!-- open {tag} here -->",
    "<!-- <{tag}>{thing}</{tag}> -->",
)
_TEXTS = (
    "{adjective} {thing}",
    "{name}",
    "The {thing} of {name}",
    "{town}",
    "{n} {colour} {animal}",
    "see {site}",
    "{job} wanted",
    "{idea} and {idea2}",
    "{name} in {town}",
    "no. {n}",
    "{plant}",
    "1 &lt; {n}",
)

_FRAMES = (
    "{html}\nClose every element that is still open, innermost first.",
    "Complete this HTML by closing its open elements in the right order:\n{html}",
    "HTML prefix: {html}\nWhich closing tags are missing? Last opened, first closed.",
    "The file breaks off here:\n{html}\nAdd the closing tags of all open elements, last opened first.",
    "{html}\nWrite the sequence of closing tags that makes the fragment balanced.",
    "A page was cut off after\n{html}\nSupply only the missing closing tags.",
    "Balance the tags. Fragment: {html}",
    "Fragment to finish:\n{html}\nAppend a closing tag for each open element, from the inside out.",
    "What must follow to close all open elements?\n{html}",
    "{html}\nThe elements above were not all closed. Close the rest in nesting order.",
    "Open elements remain in this markup: {html}\nClose them.",
    "Given the beginning of a document, write its end.\n{html}\nNo new text, only closing tags.",
    "The editor stopped at: {html}\nType the closing tags it still needs.",
    "{name} forgot to close the elements of\n{html}\nClose them for {name}, the last opened first.",
    "Markup for the {site} page:\n{html}\nEnd it with the closing tags that are due.",
    "Repair by adding closing tags at the end: {html}",
)

_WHAT = (
    "only the missing closing tags",
    "the closing tags in order",
    "the closing-tag sequence without spaces",
    "just the closing tags",
    "the missing end of the fragment",
)


def _props(draw: Draw) -> dict[str, str]:
    return {
        "adjective": draw.choice(ADJECTIVES),
        "thing": draw.choice(GOODS),
        "colour": draw.choice(COLOURS),
        "animal": draw.choice(ANIMALS),
        "plant": draw.choice(PLANTS),
        "job": draw.choice(JOBS),
        "site": draw.choice(SITES),
        "idea": draw.choice(IDEAS),
        "idea2": draw.choice(IDEAS),
        "name": draw.choice(FIRST),
        "town": place_name(draw),
        "n": str(draw.between(2, 999)),
        "code": invented(draw),
        "tag": draw.choice((*_BLOCKS, *_INLINE)),
    }


def _custom(draw: Draw) -> str:
    """A custom element: HTML lets anyone invent names that contain a hyphen."""
    short = [word for word in (draw.choice(GOODS), draw.choice(ANIMALS), invented(draw)) if len(word) < 8]
    return f"{draw.choice(short or ['x'])}-{draw.choice(_SUFFIXES)}"


def _nesting(draw: Draw, depth: int, custom: float) -> list[str]:
    """Names of `depth` elements, outermost first, that may contain each other."""
    ladder = list(draw.choice(_LADDERS)) if depth >= 3 and draw.chance(0.5) else []
    ladder = ladder[: depth - 1]
    inline = draw.between(0, min(3, depth - len(ladder)))
    if ladder and ladder[-1] in (
        "ul",
        "ol",
        "menu",
        "dl",
        "table",
        "tbody",
        "thead",
        "tr",
        "select",
        "option",
        "video",
    ):
        inline = 0
    blocks = depth - len(ladder) - inline
    # Few names, often repeated, are the other way to be hard: they must be counted.
    choices = draw.sample(_BLOCKS[:-1], 2) if depth > 4 and draw.chance(0.25) else _BLOCKS[:-1]
    outer = [_custom(draw) if draw.chance(custom) else draw.choice(choices) for _ in range(blocks)]
    if outer and draw.chance(0.15):
        outer[0] = "body"
    if outer and not ladder and draw.chance(0.5):
        outer[-1] = draw.choice(_LEAVES)
    inner = [_custom(draw) if draw.chance(custom) else draw.choice(_INLINE) for _ in range(inline)]
    return _allowed(outer + ladder + inner)


# HTML forbids these inside themselves: a browser would close the outer one.
_ONCE = {"form": "div", "a": "span", "button": "span", "label": "span"}


def _allowed(names: list[str]) -> list[str]:
    return [_ONCE[name] if name in _ONCE and name in names[:at] else name for at, name in enumerate(names)]


def pieces(text: str) -> int:
    """A cautious count of the tokens of an answer: three letters, two marks or one digit each."""
    total = run = 0
    kind = ""
    for char in text:
        now = "letter" if char.isalpha() else "mark"
        if now != kind or run == (3 if now == "letter" else 2) or char.isdigit():
            total, run, kind = total + 1, 0, now
        run += 1
    return total


def _open(draw: Draw, name: str, level: int) -> str:
    attributes: list[str] = []
    if level > 1 and draw.chance(0.4):
        attributes.append(draw.choice(_ATTRIBUTES).format(**_props(draw)))
    if level == 4 and draw.chance(0.15):
        attributes.append(draw.choice(_TRAPS).format(**_props(draw)))
    return f"<{' '.join([name, *attributes])}>"


# Where text or an inline element must not stand, a stray one would be bad HTML even if it is well nested.
_NO_TEXT = frozenset(words("ul ol menu dl table tbody thead tr select video"))


def _filling(draw: Draw, parent: str, level: int) -> str:
    """What stands between an opening tag and the next one. All of it is balanced."""
    if parent in _NO_TEXT:
        sibling = {"ul": "li", "ol": "li", "menu": "li", "dl": "dd", "tr": "td", "select": "option"}.get(parent)
        if level >= 3 and sibling and draw.chance(0.6):
            return f"<{sibling}>{draw.choice(_TEXTS).format(**_props(draw))}</{sibling}>"
        return ""
    kinds = ["text"] * 3 + ["none"] * 3
    if level >= 3:
        kinds += ["closed"] * 3 + ["void"] * 2
    if level == 4:
        kinds += ["comment"] * 2 + ["nested"]
    if parent == "option":
        kinds = ["text"]
    kind = draw.choice(kinds)
    props = _props(draw)
    if kind == "text":
        return draw.choice(_TEXTS).format(**props)
    if kind == "void":
        return draw.choice(_VOID).format(**props)
    if kind == "comment":
        return draw.choice(_COMMENTS).format(**props)
    if kind in ("closed", "nested"):
        outer, inner = draw.choice(_INLINE), draw.choice(_INLINE)
        text = props["thing"]
        return f"<{outer}>{text}</{outer}>" if kind == "closed" else f"<{outer}><{inner}>{text}</{inner}></{outer}>"
    return ""


_DEPTHS = ((2, 4), (4, 6), (5, 7), (6, 8))
_CUSTOM = (0.15, 0.3, 0.3, 0.35)
_LENGTHS = (140, 200, 330, 430)


def _fragment(draw: Draw, level: int) -> tuple[str, list[str]]:
    names = _nesting(draw, draw.between(*_DEPTHS[level - 1]), _CUSTOM[level - 1])
    markup = []
    for name in names:
        markup.append(_open(draw, name, level))
        dense = (0.15, 0.35, 0.5, 0.5)[level - 1]
        if draw.chance(dense):
            markup.append(_filling(draw, name, level))
    return "".join(markup), names


def _fits(html: str, target: str, level: int) -> bool:
    return len(html) <= _LENGTHS[level - 1] and len(target) <= LIMIT and pieces(target) <= TOKENS


def generate(draw: Draw, level: int) -> Example:
    """One example of the given level."""
    check_level(level)
    while True:
        html, names = _fragment(draw, level)
        parts = tuple(f"</{name}>" for name in reversed(names))
        target = "".join(parts)
        if _fits(html, target, level):
            break
    at = draw.below(len(_FRAMES))
    task = _FRAMES[at].format(html=html, name=draw.choice(FIRST), site=draw.choice(SITES))
    prompt = f"{task}\n{closing(draw, draw.choice(_WHAT))}"
    return Example(prompt, target, parts, {"frame": str(at), "depth": len(names), "html": html}, level)


SCORER = Scorer("exact/partial", scorers.score_closing_tags)
TASK = constructed(
    "html-close-tags", "HTML Close Tags", SCORER, generate, max_new_tokens=48, output="closing-tag suffix", version="1"
)
