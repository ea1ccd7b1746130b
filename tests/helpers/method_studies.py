"""A study of the policy axis on the tiny network, and a judge that tells its answers apart."""

from tests.helpers.tiny_studies import by_hash, table
from unmask.lab.run.judging import JudgedAnswer

NAMES = ["llada", "klass:window=1,threshold=0.0", "wino:block_length=4", "info-gain:threshold=none,candidates=3", "dus"]


def raw(folder="FOLDER", **changes):
    """The tiny study file with the policy axis alone."""
    base = {
        "models__0__model": str(folder),
        "axes": ["policy"],
        "candidates": {"policy": NAMES},
        "diagnostics": ...,
        "revision": ...,
        "states": 2,
        "splits": {"validation": 2, "evaluation": 1},
    }
    return table(**{**base, **changes})


def judged(self, answers):
    """In place of `Judge.judge`."""
    texts = [(str(tokens), prompt) for prompt, tokens in answers]
    pairs = [(text, type("Example", (), {"id": prompt})) for text, prompt in texts]
    return [JudgedAnswer(text, u, why) for (text, _), (u, why) in zip(texts, by_hash(pairs), strict=True)]
