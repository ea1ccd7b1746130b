"""Text from outside (answers, reasons, names, prompts, errors of a user's code), as every file and screen holds it."""


def storable(text: str) -> str:
    """The text with halves of characters (lone surrogates) as U+FFFD; UTF-8 has no bytes for them.

    Called once, where a text enters; what is inside the package is storable.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
