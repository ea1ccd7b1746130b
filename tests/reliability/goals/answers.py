"""Hostile answers, and hostile messages of scorers, all the way through: no run dies of them and no answer profits."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.goals.bits import report
from tests.reliability.hostile import TEXTS
from tests.reliability.made import STUDY, WORKS, Made
from tests.reliability.process import unmask

# Raises for the prompts of MEAN, in its own way; the others have a utility.
SCORER = """
class Mine(BaseException):
    pass

class Unspeakable(ValueError):
    def __str__(self):
        raise Unspeakable

TEXT = {text!r}

def score(text, example):
    if example["id"] in {ids!r}:
        {act}
    return len(text) % 7 / 7
"""
RAISES = (
    "raise ValueError(TEXT)",
    "raise Unspeakable",
    "raise SystemExit(TEXT)",
    "raise type(TEXT[:9] or 'E', (ValueError,), {})(TEXT)",
)
RAISES += ("raise ExceptionGroup('group', [ValueError(TEXT)])", "raise StopIteration(TEXT)", "assert False, TEXT")
BREAKS = ("return 1.7", "return float('nan')", "return None", "return TEXT", "raise Mine(TEXT)", "raise GeneratorExit")


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    return KINDS[case.number % len(KINDS)](case, folder, made)


def _own_task(folder: Path, text: str, ids: Sequence[str], act: str) -> None:
    WORKS["study"].prepare(folder)
    (folder / "study.toml").write_text(STUDY.replace('"contains"', '"scoring:score"'), encoding="utf-8")
    source = SCORER.format(text=text, ids=tuple(ids), act=act)
    (folder / "scoring.py").write_text(source, encoding="utf-8")


def _scorer(case: Case, folder: Path, made: Made) -> str | None:
    """A scorer that raises hostile messages for some prompts: those have no utility, and the study is complete."""
    rng = case.rng
    text, act = (TEXTS[0], RAISES[0]) if case.number == 0 else (rng.choice(TEXTS), rng.choice(RAISES))
    _own_task(folder, text, [f"p{n}" for n in range(0, 16, 3)], act)
    what = f"a scorer that does {act} with {text[:20]!r}"
    ended = unmask(*WORKS["study"].arguments, folder=folder)
    if ended.trouble or ended.code:
        return f"study run, {what}: {ended.trouble or ended.last}"
    page = report(folder, "page")[0]
    return f"report, {what}: {page.trouble or page.last}" if page.trouble or page.code else None


def _set_aside(case: Case, folder: Path, made: Made) -> str | None:
    """A shard that fails every time is set aside, and the rest goes on."""
    act = BREAKS[case.number // len(KINDS) % len(BREAKS)]
    prompt = _of_one_shard(made)
    _own_task(folder, case.rng.choice(TEXTS[:4]), [prompt], act)
    for _ in range(4):
        ended = unmask(*WORKS["study"].arguments, folder=folder)
        if ended.trouble or ended.code not in (0, 3):
            return f"a scorer that does {act} for {prompt}: {ended.trouble or ended.last}"
    shown = unmask("study", "status", "study", "--json", folder=folder)
    told = json.loads(shown.out or "{}")
    finished = sum(model["finished"] for model in told.get("models", {}).values())
    # One shard of four at most is lost, and the exit code says so.
    if shown.trouble or finished not in (3, 4) or (ended.code == 3) != (finished == 3):
        return f"a scorer that does {act} for {prompt}: {finished} of 4 shards, exit code {ended.code}"
    return None


def _of_one_shard(made: Made) -> str:
    """A prompt that the study measures."""
    info = sorted((made.folder / "study" / "study" / "shards").glob("[!.]*/shard.json"))[0]
    text = info.read_text(encoding="utf-8")
    return next(f"p{n}" for n in range(16) if f'"p{n}"' in text)


KINDS: tuple[Callable[[Case, Path, Made], str | None], ...] = (_scorer, _set_aside)
GOAL = Goal("answers", "hostile answers and scorers", try_case, sample=6, needs=("study",))
