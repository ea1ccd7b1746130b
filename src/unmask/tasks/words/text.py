"""Word lists are written as text, many words to a line."""


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


def forms(text: str) -> tuple[tuple[str, ...], ...]:
    """The words of a text, each split at its slashes."""
    return tuple(tuple(word.split("/")) for word in text.split())
