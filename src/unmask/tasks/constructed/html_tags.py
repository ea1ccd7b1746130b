"""HTML Close Tags: a prefix of nested elements, and the closing tags that are still missing.

A model that only reverses a list of names finds this easy, so from level 2 on there are names it has never seen
(custom elements), and from level 3 on tags that must not be closed: elements already closed, void elements,
comments, and tags quoted in attributes.
"""

from unmask.tasks import scorers
from unmask.tasks import words as w
from unmask.tasks.draw import Draw
from unmask.tasks.splits import constructed_task
from unmask.tasks.task import Example, Scorer

LIMIT = 84
"""Longest answer, in characters, so that it fits the tokens of the task in a small vocabulary."""
TOKENS = 40
"""Largest number of tokens in an answer, as `_estimate_tokens` counts them."""

_BLOCKS = w.word_list("div section article main aside nav header footer figure form fieldset details blockquote body")
_LEAVES = w.word_list("p h1 h2 h3 h4 h5 h6 pre address summary legend figcaption")
_INLINE = w.word_list(
    "span em strong b i u a code small sub sup mark q cite abbr kbd samp var dfn s ins del time data label"
)
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
_NO_INLINE = w.word_list("ul ol menu dl table tbody thead tr select option video")
_SUFFIXES = w.word_list(
    "card list box item panel page view row cell menu bar grid map note link tab form feed tile label"
)
_VOID: tuple[str, ...] = w.sentences("html_tags", "void")
_ATTRIBUTES: tuple[str, ...] = w.sentences("html_tags", "attributes")
_TRAPS: tuple[str, ...] = w.sentences("html_tags", "traps")
_COMMENTS: tuple[str, ...] = w.sentences("html_tags", "comments")
_TEXTS: tuple[str, ...] = w.sentences("html_tags", "texts")
_FRAMES: tuple[str, ...] = w.sentences("html_tags", "frames")
_WHAT: tuple[str, ...] = w.sentences("html_tags", "what")


def _draw_template_values(draw: Draw) -> dict[str, str]:
    return {
        "adjective": draw.choice(w.ADJECTIVES),
        "thing": draw.choice(w.GOODS),
        "colour": draw.choice(w.COLOURS),
        "animal": draw.choice(w.ANIMALS),
        "plant": draw.choice(w.PLANTS),
        "job": draw.choice(w.JOBS),
        "site": draw.choice(w.SITES),
        "idea": draw.choice(w.IDEAS),
        "idea2": draw.choice(w.IDEAS),
        "name": draw.choice(w.FIRST),
        "town": w.draw_place_name(draw),
        "n": str(draw.integer(2, 999)),
        "code": w.invent_word(draw),
        "tag": draw.choice((*_BLOCKS, *_INLINE)),
    }


def _invent_element(draw: Draw) -> str:
    """Make up the name of a custom element. HTML allows any name that contains a hyphen."""
    short = [word for word in (draw.choice(w.GOODS), draw.choice(w.ANIMALS), w.invent_word(draw)) if len(word) < 8]
    return f"{draw.choice(short or ['x'])}-{draw.choice(_SUFFIXES)}"


def _draw_nesting(draw: Draw, depth: int, custom: float) -> list[str]:
    """Draw the names of `depth` nested elements, outermost first, as HTML allows them."""
    ladder = list(draw.choice(_LADDERS)) if depth >= 3 and draw.chance(0.5) else []
    ladder = ladder[: depth - 1]
    inline = draw.integer(0, min(3, depth - len(ladder)))
    if ladder and ladder[-1] in _NO_INLINE:
        inline = 0
    blocks = depth - len(ladder) - inline
    # Few names, often repeated, are the other way to be hard: they must be counted.
    choices = draw.sample(_BLOCKS[:-1], 2) if depth > 4 and draw.chance(0.25) else _BLOCKS[:-1]
    outer = [_invent_element(draw) if draw.chance(custom) else draw.choice(choices) for _ in range(blocks)]
    if outer and draw.chance(0.15):
        outer[0] = "body"
    if outer and not ladder and draw.chance(0.5):
        outer[-1] = draw.choice(_LEAVES)
    inner = [_invent_element(draw) if draw.chance(custom) else draw.choice(_INLINE) for _ in range(inline)]
    return _replace_forbidden_nesting(outer + ladder + inner)


# HTML forbids these inside themselves: a browser would close the outer one.
_ONCE = {"form": "div", "a": "span", "button": "span", "label": "span"}


def _replace_forbidden_nesting(names: list[str]) -> list[str]:
    """Replace elements that HTML does not allow inside another element of the same name."""
    return [_ONCE[name] if name in _ONCE and name in names[:at] else name for at, name in enumerate(names)]


def _estimate_tokens(text: str) -> int:
    """Estimate an upper bound of an answer's tokens: three letters, two marks or one digit per token."""
    total = run = 0
    kind = ""
    for char in text:
        now = "letter" if char.isalpha() else "mark"
        if now != kind or run == (3 if now == "letter" else 2) or char.isdigit():
            total, run, kind = total + 1, 0, now
        run += 1
    return total


def _write_tag(draw: Draw, name: str, level: int) -> str:
    attributes: list[str] = []
    if level > 1 and draw.chance(0.4):
        attributes.append(draw.choice(_ATTRIBUTES).format(**_draw_template_values(draw)))
    if level == 4 and draw.chance(0.15):
        attributes.append(draw.choice(_TRAPS).format(**_draw_template_values(draw)))
    return f"<{' '.join([name, *attributes])}>"


# Where text or an inline element must not stand, a stray one would be bad HTML even if it is well nested.
_NO_TEXT = frozenset(w.word_list("ul ol menu dl table tbody thead tr select video"))


def _write_content(draw: Draw, parent: str, level: int) -> str:
    """Write text, a closed element, a void element or a comment to stand after an opening tag."""
    if parent in _NO_TEXT:
        sibling = {"ul": "li", "ol": "li", "menu": "li", "dl": "dd", "tr": "td", "select": "option"}.get(parent)
        if level >= 3 and sibling and draw.chance(0.6):
            return f"<{sibling}>{draw.choice(_TEXTS).format(**_draw_template_values(draw))}</{sibling}>"
        return ""
    kinds = ["text"] * 3 + ["none"] * 3
    if level >= 3:
        kinds += ["closed"] * 3 + ["void"] * 2
    if level == 4:
        kinds += ["comment"] * 2 + ["nested"]
    if parent == "option":
        kinds = ["text"]
    kind = draw.choice(kinds)
    props = _draw_template_values(draw)
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


def _write_fragment(draw: Draw, level: int) -> tuple[str, list[str]]:
    names = _draw_nesting(draw, draw.integer(*_DEPTHS[level - 1]), _CUSTOM[level - 1])
    markup = []
    for name in names:
        markup.append(_write_tag(draw, name, level))
        dense = (0.15, 0.35, 0.5, 0.5)[level - 1]
        if draw.chance(dense):
            markup.append(_write_content(draw, name, level))
    return "".join(markup), names


def _fits_limits(html: str, target: str, level: int) -> bool:
    return len(html) <= _LENGTHS[level - 1] and len(target) <= LIMIT and _estimate_tokens(target) <= TOKENS


def generate(draw: Draw, level: int) -> Example:
    """Make one example of the given level: markup with open elements, and their closing tags."""
    while True:
        html, names = _write_fragment(draw, level)
        parts = tuple(f"</{name}>" for name in reversed(names))
        target = "".join(parts)
        # Drawn again and not cut, because a fragment cut short would have other open tags.
        if _fits_limits(html, target, level):
            break
    at = draw.index(len(_FRAMES))
    task = _FRAMES[at].format(html=html, name=draw.choice(w.FIRST), site=draw.choice(w.SITES))
    prompt = f"{task}\n{w.draw_answer_line(draw, draw.choice(_WHAT))}"
    return Example(prompt, target, parts, {"frame": str(at), "depth": len(names), "html": html}, level)


TASK = constructed_task(
    "html-close-tags",
    "HTML Close Tags",
    Scorer("exact/partial", scorers.score_closing_tags),
    generate,
    max_new_tokens=48,
    output="closing-tag suffix",
    version="1",
)
