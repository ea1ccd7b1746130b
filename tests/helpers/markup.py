"""HTML pages read back: every tag closed, in the right order."""

from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "br", "input", "link", "img", "hr"}


class _Tree(HTMLParser):
    def __init__(self):
        super().__init__()
        self.builder, self.open = ElementTree.TreeBuilder(), []

    def handle_starttag(self, tag, attrs):
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self.builder.end(tag)
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        self.builder.end(tag)

    def handle_data(self, data):
        if self.open:
            self.builder.data(data)


def tree(page):
    """The page as elements; fails where tags do not match."""
    reader = _Tree()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader.builder.close()


def texts(page, tag):
    """What stands in all elements of that name, in their order."""
    return [" ".join("".join(e.itertext()).split()) for e in tree(page).iter(tag)]
