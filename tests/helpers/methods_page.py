"""The table of methods in docs/methods.md, made from the classes: `python -m tests.helpers.methods_page` writes it."""

from tests.helpers.paths import DOCS
from unmask.methods import METHODS, TAXONOMY

PAGE = DOCS / "methods.md"
BEGIN, END = "<!-- taxonomy: begin (python -m tests.helpers.methods_page) -->\n", "<!-- taxonomy: end -->"


def table() -> str:
    """One line per method."""
    lines = [f"| method | {' | '.join(TAXONOMY)} | label | source |", f"|{'---|' * (len(TAXONOMY) + 3)}"]
    for name, method in METHODS.items():
        card = method
        assert card is not None, name
        row = " | ".join(getattr(card, axis) for axis in TAXONOMY)
        lines.append(f"| `{name}` | {row} | {card.label} | {card.citation} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with a fresh table."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
