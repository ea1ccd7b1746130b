"""A verdict as text a person can follow, step by step."""

from unmask.tasks.base import Verdict

WIDTH = 100
"""Characters of a text that are shown; the middle of a longer one is left out."""


def explain(verdict: Verdict) -> list[str]:
    """One line per step: what was written, what was found in it, how each part compares, what it is worth."""
    steps = verdict.extraction
    rows = [
        ("output", _quoted(steps.raw)),
        ("found by", steps.how),
        ("extracted", _quoted(steps.extracted)),
        ("normalised", _quoted(steps.normalised)),
        *((part.name, _part(part.given, part.expected, part.right)) for part in verdict.parts),
        ("utility", f"{_worth(verdict.utility)}: {verdict.reason}"),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {text}" for name, text in rows]


def _part(given: str | None, expected: str, right: bool) -> str:
    if right:
        return f"right: {_short(expected)}"
    return f"wrong: {'nothing' if given is None else _short(given)}, expected {_short(expected)}"


def _worth(utility: float | None) -> str:
    return "unavailable" if utility is None else f"{utility:.4g}"


def _quoted(text: str) -> str:
    """Line ends and other control characters as escapes."""
    return _short(repr(text))


def _short(text: str) -> str:
    if len(text) <= WIDTH:
        return text
    return f"{text[: WIDTH // 2]} [...] {text[-WIDTH // 3 :]}"
