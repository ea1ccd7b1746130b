"""Hostile text through every page: nothing comes to life in HTML, no cell of other formats leaves its place."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.reliability.case import Case, Goal
from tests.reliability.goals.answers import SCORER
from tests.reliability.hostile import TEXTS
from tests.reliability.judges import file_faults
from tests.reliability.made import PROMPTS, STUDY, WORKS, Made
from tests.reliability.process import unmask
from unmask.base.files import replace_surrogates

SHORT = tuple(dict.fromkeys(replace_surrogates(text)[:2000] for text in TEXTS))


def try_case(case: Case, folder: Path, made: Made) -> str | None:
    found = list(_study(case, folder))
    return "; ".join(found[:5]) if found else None


def _study(case: Case, folder: Path) -> Iterator[str]:
    """Names of a study and of a model, prompts, ids, and reasons of a scorer."""
    rng = case.rng
    study, model, id, reason = (rng.choice(SHORT) for _ in range(4))
    WORKS["study"].prepare(folder)
    text = STUDY.replace('"contains"', '"scoring:score"').replace('"tortured"', _toml(study + "s"))
    (folder / "study.toml").write_text(text.replace('name = "exact"', f"name = {_toml(model + 'm')}"), encoding="utf-8")
    lines = [{"prompt": p, "target": f"{reason}{p}", "id": f"{id}{n}"} for n, p in enumerate(PROMPTS)]
    (folder / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    scorer = SCORER.format(text=reason, ids=tuple(f"{id}{n}" for n in range(0, 16, 3)), act="raise ValueError(TEXT)")
    (folder / "scoring.py").write_text(scorer, encoding="utf-8")
    what = f"study {study[:30]!r}, model {model[:30]!r}, ids {id[:30]!r}, reasons {reason[:30]!r}"
    for command in (
        WORKS["study"].arguments,
        ("study", "report", "study", "--out", "page"),
        ("study", "status", "study"),
    ):
        ended = unmask(*command, folder=folder)
        if ended.code == 2 and "allowed" in ended.err and not ended.trouble:
            return
        if ended.trouble or ended.code:
            yield f"{what}: {' '.join(map(str, command[:2]))}: {ended.trouble or ended.last}"
            return
    yield from (f"{what}: {fault}" for fault in file_faults(folder / "page", {"report.html": 2, "states.html": 2}))


def _toml(text: str) -> str:
    """A TOML text: JSON's, but for what TOML wants escaped and JSON does not, and the other way round."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


GOAL = Goal("pages", "hostile text through every page", try_case, sample=5)
