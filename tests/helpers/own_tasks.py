"""Tasks of one's own: a file of prompts, a study of it, and scoring functions that behave and misbehave."""

from tests.helpers.tiny_studies import changed
from unmask.lab.study import StudyConfig

LINES = [{"prompt": f"Say the word w{n}.", "target": f"w{n}", "id": f"p{n}"} for n in range(8)]

TEXT = """
name = "own"
seed = 3
tasks = ["mine"]
axes = ["region"]
states = 2
rollouts = 2
temperature = 0.0

[own.mine]
prompts = "mine.jsonl"
score = "contains"
horizon = 6

[[models]]
name = "tiny"
model = "tiny"
reference = "llada"

[splits]
validation = 3
evaluation = 2

[steps]
share = 0.5

[revision]
variant = "conf"

[candidates]
region = ["full", "block:8"]

[engine]
rows = 4
bucket = 256
prompts = 2
"""

SCORER = """
calls = []

def score(text, example):
    calls.append(example["id"])
    return MODE(text, example)

def fair(text, example):
    return len(text) % 7 / 7

def sometimes(text, example):
    if example["id"] in ("p0", "p3", "p5"):
        raise ValueError("cannot tell")
    return 0.5

def always(text, example):
    raise ValueError("cannot tell")

class Odd:
    def __repr__(self):
        return "no more: \\ud800"

def leaves(text, example):
    # Breaks its promise at prompts that a file names, with half a character in what it returns.
    with open("bad.txt", encoding="utf-8") as bad:
        if example["id"] in bad.read().split():
            return Odd()
    return 0.5

def halves(text, example):
    if example["id"] in ("p0", "p3", "p5"):
        raise ValueError("half a character: \\ud800")
    return 0.5

def high(text, example):
    return 1.7

def same(text, example):
    return float(text == example["target"])

def picky(text, example):
    if example["id"].endswith("b") and text != example["target"]:
        raise ValueError("cannot tell")
    return same(text, example)

MODE = NAMED
"""


def parsed(folder, **changes):
    """The study above, changed, with its files in `folder`."""
    return StudyConfig.parse(changed(TEXT, **changes), folder)
