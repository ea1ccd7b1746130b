"""Hostile text through every page: nothing comes to life in HTML, no cell of other formats leaves its place."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.helpers import made_demo, made_studies
from tests.torture.case import Case, Failure, Goal
from tests.torture.goals.answers import SCORER
from tests.torture.hostile import TEXTS
from tests.torture.judges import csv_faults, file_faults, html_faults
from tests.torture.made import PROMPTS, STUDY, WORKS, Made
from tests.torture.process import unmask
from unmask.base.files import storable
from unmask.lab.analysis import analyse

SHORT = tuple(dict.fromkeys(storable(text)[:2000] for text in TEXTS))


def try_case(case: Case, folder: Path, made: Made) -> Failure | None:
    found = list(KINDS[case.number % len(KINDS)](case, folder))
    return Failure("; ".join(found[:5])) if found else None


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
    yield from (f"{what}: {fault}" for fault in file_faults(folder / "page", {"report.html": 4, "states.html": 3}))


def _toml(text: str) -> str:
    """A TOML text: JSON's, but for what TOML wants escaped and JSON does not, and the other way round."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_DEMO_SCRIPTS = 9
"""The four of a study's page; runs and states, what draws each of them, and what the page's buttons do."""


def _demo(case: Case, folder: Path) -> Iterator[str]:
    """Labels of policies, families of problems, prompts, and what was decoded."""
    from unmask.report.demo.files import table_csv
    from unmask.report.demo.page import page

    label, family, answer = (case.rng.choice(SHORT) for _ in range(3))
    old = made_demo.COMPARISON

    def named(name: str) -> str:
        return f"{name}{label}" if name in {r.label for r in made_demo.REVEALS} else name

    rows = tuple(replace(row, label=named(row.label), family=f"{row.family}{family}") for row in old.rows)
    reveals = tuple(replace(reveal, label=named(reveal.label), text=answer or "a") for reveal in old.reveals)
    config = json.loads(json.dumps(old.config))
    for problem in config["problems"]:
        problem["family"] += family
    for contender in config["contenders"]:
        contender["label"] = named(contender["label"])
    made = replace(old, rows=rows, reveals=reveals, config=config)
    what = f"label {label[:30]!r}, family {family[:30]!r}, answer {answer[:30]!r}"
    results = made_demo.results(analyse(made_studies.store(folder / "known", made_studies.known()), resamples=20))
    runs = [replace(run, example=replace(run.example, prompt=label, target=answer)) for run in results.runs]
    records = [{**record, "prompt": label, "text": answer} for record in results.records]
    text = page(replace(results, comparison=made, runs=runs, records=records))
    faults = (*html_faults(text, _DEMO_SCRIPTS), *csv_faults("problems.csv", table_csv(made.rows)))
    yield from (f"{what}: {fault}" for fault in faults)


def _compare(case: Case, folder: Path) -> Iterator[str]:
    """Answers, reasons, prompts and policies of a comparison."""
    from unmask.lab.compare import AnswerRow, Evaluation, TaskRun
    from unmask.lab.compare_failed import LeftOut
    from unmask.lab.compare_summary import summarise
    from unmask.report import compare as page

    rng = case.rng
    policy, reason, answer, prompt = (rng.choice(SHORT) for _ in range(4))
    policies = ("reference", f"p{policy}")
    rows = tuple(
        AnswerRow("carry-rtl", name, f"{prompt}{n}", rng.random(), reason, 1, 0, 0, 0, 9, 8, answer)
        for name in policies
        for n in range(3)
    )
    runs = (TaskRun("carry-rtl", 8, 4, prompts=3), TaskRun("gsm8k", 8, 4, unavailable=reason))
    out = (LeftOut("carry-rtl", f"q{policy}", reason),)
    versions = {"unmask": "0", "python": "3", "torch": "2", "numpy": "2"}
    config = {
        "model": {"name": prompt},
        "device": "cpu",
        "split": "fresh",
        "seed": 0,
        "temperature": 0.0,
        "versions": versions,
    }
    evaluation = Evaluation("fresh", (*policies, f"q{policy}"), runs, rows, out, config)
    page.write(evaluation, summarise(evaluation, resamples=5), folder / "compared")
    what = f"policy {policy[:30]!r}, reason {reason[:30]!r}, answer {answer[:30]!r}, prompt {prompt[:30]!r}"
    yield from (f"{what}: {fault}" for fault in file_faults(folder / "compared", {"compare.html": 3}))


KINDS: tuple[Callable[[Case, Path], Iterator[str]], ...] = (_study, _demo, _compare)
GOAL = Goal("pages", "hostile text through every page", try_case, sample=15)
