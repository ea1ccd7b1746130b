"""A comparison of policies made by hand: nothing runs a model."""

from unmask.lab.demo import AT_ONCE, MODE, DemoComparison, DemoRow, Reveal


def rows(label, method, utilities, forwards, stderr=0.0):
    """One row for each of two problems."""
    return [
        DemoRow(f"{family}/0", family, label, method, utility, stderr, 4 if stderr else 1, not stderr, forwards, 4)
        for family, utility in zip(("dense", "far"), utilities, strict=True)
    ]


ROWS = [
    *rows(MODE, "", (1.0, 1.0), None),
    *rows(AT_ONCE, "", (0.2, 0.4), 1.0),
    *rows("slow & sure", "llada", (0.9, 0.7), 4.0),
    *rows("slower", "dream", (0.9, 0.7), 5.0),
    *rows("quick", "fixed", (0.8, 0.4), 2.0),
    *rows("dice", "revised", (0.5, 0.5), 4.0, stderr=0.03),
]
REVEALS = (
    Reveal("slow & sure", (0, 1, 2, 3, 4), (0, 0, 0, 0, 0), "abaab", 0.9),
    Reveal("slower", (0, 4, 3, 2, 1), (0, 0, 0, 0, 0), "abaab", 0.9),
    Reveal("quick", (0, 1, 1, 2, 2), (0, 0, 0, 0, 0), "ababb", 0.8),
    Reveal("dice", (0, 4, 2, 3, 4), (0, 1, 0, 0, 2), "aaaab", 0.5),
)
CONFIG = {
    "problems": [
        {
            "name": f"{family}/0",
            "family": family,
            "seed": 0,
            "n": 5,
            "vocab": 2,
            "dependence": 2.0,
            "prompt_length": 1,
        }
        for family in ("dense", "far")
    ],
    "contenders": [
        {"label": reveal.label, "steps": 4, "policy": {"name": "llada", "block_length": None}} for reveal in REVEALS
    ],
    "seeds": 4,
    "temperature": 0.0,
    "versions": {"unmask": "0.0.0", "python": "3.11"},
}
COMPARISON = DemoComparison(tuple(ROWS), "dense/0, prompt 'a'", REVEALS, CONFIG)
