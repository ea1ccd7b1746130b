"""Tables of a comparison as Markdown."""

from unmask.report.sheet import AnySheet


def grid_markdown(sheet: AnySheet) -> str:
    """Return heads and cells, even where there are only heads."""
    heads = [column.head or "" for column in sheet.heads]
    sides = ["---" if column.left else "---:" for column in sheet.heads]
    return "\n".join(f"| {' | '.join(_inline(cell) for cell in line)} |" for line in (heads, sides, *sheet.shown))


def _inline(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
