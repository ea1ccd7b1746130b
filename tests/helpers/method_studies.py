"""A study of the policy axis on the tiny network, and a judge that tells its answers apart."""

from tests.helpers.tiny_studies import by_hash, table
from unmask.lab.study import prompts

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


def spell_and_score_by_hash(patch) -> None:
    """Answers are their tokens, and their utility is a hash of those."""
    patch.setattr(prompts, "answer_text", lambda codec, request, tokens: str(tuple(tokens)))
    patch.setattr(prompts, "score_texts", lambda pairs, *_: by_hash(pairs))
