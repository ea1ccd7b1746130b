"""HTML Close Tags: the closing tags follow from the markup of the prompt."""

from collections import Counter
from html.parser import HTMLParser

from tests.helpers.constructed import LEVELS, drafts, many
from unmask.tasks import Example, words
from unmask.tasks.constructed import html_tags

PHRASING = set(
    words.word_list(
        "a abbr b button cite code data del dfn em i ins kbd label mark q s samp small span strong sub sup time u var"
    )
)
VOID = {"br", "img", "input", "wbr", "hr", "meta", "link"}


class Stack(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.closed = 0
        self.tricks: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self.tricks.add("void")
        else:
            self.open.append(tag)
        self.tricks |= {"attribute"} if attrs else set()
        self.tricks |= {"quoted tag" for _, value in attrs if value and ("<" in value or ">" in value)}

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.closed += 1

    def handle_comment(self, data: str) -> None:
        self.tricks.add("comment")


def parsed(draft: Example) -> Stack:
    stack = Stack()
    stack.feed(draft.prompt.rsplit("\n", 1)[0])
    stack.close()
    return stack


def test_closing_tags_follow_from_the_prompt() -> None:
    for draft in many(html_tags.TASK):
        stack = parsed(draft)
        assert draft.parts == tuple(f"</{name}>" for name in reversed(stack.open)), draft.prompt
        assert draft.target == "".join(draft.parts)


def test_html_levels_differ_in_depth_and_in_tricks() -> None:
    for level, (low, high) in zip(LEVELS, ((2, 4), (4, 6), (5, 7), (6, 8)), strict=True):
        stacks = [parsed(draft) for draft in drafts(html_tags.TASK, level)]
        assert {len(stack.open) for stack in stacks} <= set(range(low, high + 1))
        tricks = set().union(*(stack.tricks for stack in stacks))
        assert ("attribute" in tricks) == (level > 1)
        assert ("void" in tricks) == (level > 2)
        assert ("comment" in tricks) == ("quoted tag" in tricks) == (level > 3)
        assert any(stack.closed for stack in stacks) == (level > 2)
        assert any("-" in name for stack in stacks for name in stack.open)


def test_elements_that_may_not_nest_do_not() -> None:
    for draft in many(html_tags.TASK):
        names = parsed(draft).open
        counts = Counter(names)
        assert all(counts[name] <= 1 for name in ("a", "form", "button", "p"))
        for at, name in enumerate(names):
            if name in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre"):
                assert all("-" in inner or inner in PHRASING for inner in names[at + 1 :])
