"""Findings made from studies and results made by hand: no model is run, and the numbers are known."""

import csv
from math import isnan, nan

import numpy as np

from tests.helpers import made_studies as made
from unmask.lab.analysis.end_to_end import (
    CHOSEN,
    CONTROLS,
    DECODED_ARMS,
    DIFFERENCES,
    EndToEndCell,
    EndToEndFindings,
    EndToEndMean,
    JointCell,
)
from unmask.lab.analysis.findings import Findings, findings
from unmask.lab.analysis.opportunity import Missing, measure
from unmask.report.csv import table_csv
from unmask.report.study import study_report
from unmask.stats import Estimate

KINDS = {"find": "finds", "guess": "useless", "same": "constant", "mute": "abstains"}
"""Tasks, and what the signal does on each."""


# Opportunity


def opportunity(folder, tables, **how):
    """Findings of a study without diagnostics, with few resamples."""
    return Findings(measure(made.store(folder / "study", tables, **how), resamples=500))


def broken(folder):
    """Not complete, something unjudged, a task without data, and names that HTML must not take for markup."""
    tables = made.known()
    lost = ("small", "sort", "evaluation")
    del tables[lost]
    margin = tables["small", "fill", "evaluation"]["score"]["margin"].copy()
    margin[0, 3] = np.nan
    tables["small", "fill", "evaluation"]["score"]["margin"] = margin
    return opportunity(
        folder,
        tables,
        unfinished=[lost],
        unavailable={"gsm8k": "no <file> & no hub"},
        reason="exit | code\n1",
    )


def hinted(folder, prompts):
    """Only so many of 20 prompts have a state that gains, by 0.5."""
    late = made.flat(0.0)
    late[:prompts, 3] = 1.0
    tables = made.known()
    for task in ("fill", "sort"):
        same = {"confidence": made.flat(0.5), "margin": made.flat(0.5)}
        score = {"confidence": late, "margin": made.flat(0.5)} if task == "fill" else same
        tables["small", task, "evaluation"] = {"score": score}
        tables["small", task, "validation"] = {"score": tables["small", task, "validation"]["score"]}
    return opportunity(folder, tables, axes=["score"])


def noisy(folder):
    """Half of the rollouts of the reference are lucky on one task."""
    lucky = made.flat(0.4)
    lucky[:, :, :2] = 1.0
    tables = made.known()
    tables["small", "fill", "evaluation"]["score"] = {"confidence": lucky, "margin": made.flat(0.5)}
    return opportunity(folder, tables)


def nothing(folder):
    """Nothing could be measured."""
    return opportunity(folder, made.known(rollouts=1), temperature=0.5)


# Diagnostics


def quick(store):
    """With few resamples and draws."""
    return findings(store, resamples=200, draws=50)


def diagnosed(folder, tables, read, **how):
    return quick(made.store(folder / "study", tables, read=read, **how))


# Whole answers

GAINS = {
    "find": Estimate(0.05, 0.02, 0.08),
    "guess": Estimate(0.01, -0.02, 0.04),
    "same": Estimate(-0.1, -0.2, -0.05),
    "mute": Estimate(0.0, 0.0, 0.0),
}
"""Selective less fixed on the chosen axis."""
WINS = {"find": (20, 4, 16), "guess": (9, 8, 23), "same": (0, 4, 36), "mute": (0, 0, 40)}


def numbers(gain, shift=0.0):
    """Every arm and every difference has a number of its own."""
    arms = {arm: Estimate(0.3 + shift + 0.01 * at, 0.2, 0.6 + at) for at, arm in enumerate((*DECODED_ARMS, *CONTROLS))}
    differences = {pair: Estimate(0.001 * at + shift, -0.5 - at, 0.5) for at, pair in enumerate(DIFFERENCES)}
    return {"utility": arms, "difference": differences | {("selective", "fixed"): gain}}


def cell(task, axis="region", *, model="small", reference="llada", gain=None, chosen=True, **more):
    wins, losses, ties = WINS[task]
    values = {
        "fixed_name": "full",
        "end_to_end_name": f"block:{len(task)}",
        "never": "no bin of validation states gains" if task == "mute" else "",
        "coverage": {"always": 0.9, "selective": {"mute": 0.0, "same": nan}.get(task, 0.25), "random gate": 0.26},
        "wins": wins,
        "losses": losses,
        "ties": ties,
        "prompts": wins + losses + ties,
        "unjudged": 3 if task == "guess" else 0,
        "out_of_fold": 0.0125,
        **numbers(GAINS[task] if gain is None else gain, 0.1 * len(task)),
        **more,
    }
    return EndToEndCell(model, task, axis, reference, chosen, **values)


def mean(cells, axis=CHOSEN, gain=None, partial=""):
    gains = [c.difference["selective", "fixed"] for c in cells]
    return EndToEndMean(
        model=cells[0].model,
        reference=cells[0].reference,
        axis=axis,
        tasks=tuple(c.task for c in cells),
        **numbers(Estimate(-0.01, -0.04, 0.02) if gain is None else gain),
        coverage=0.125,
        better=sum(g.value > 0 for g in gains),
        worse=sum(g.value < 0 for g in gains),
        same=sum(g.value == 0 for g in gains),
        significant_up=sum(g.low > 0 for g in gains),
        significant_down=sum(g.high < 0 for g in gains),
        partial=partial,
    )


def joint(task="find", axes=("score", "region"), **more):
    arms = ("reference", "joint fixed", "joint", "selective")
    pairs = (("joint", "reference"), ("joint", "joint fixed"), ("joint", "selective"))
    values = {
        "utility": {arm: Estimate(0.7 + 0.01 * at, 0.1, 0.9) for at, arm in enumerate(arms)},
        "difference": {pair: Estimate(0.02 + at, 0.01 - at, 2.0 + at) for at, pair in enumerate(pairs)},
        "coverage": {"score": 0.125, "region": nan},
        "prompts": 38,
        "unjudged": 2,
    }
    return JointCell("small", task, "llada", axes, **(values | more))


def decoded():
    """Four tasks on their chosen axis, one of them on another axis too, and one that is not there."""
    cells = [cell(task) for task in GAINS]
    other = cell("find", "score", chosen=False, gain=Estimate(0.2, 0.1, 0.3))
    lost = Missing("small", "gone", "region", "not decoded <end to end> yet")
    means = (mean(cells, partial="without gone"), mean([other], "score"), mean(cells, "region"))
    return EndToEndFindings((cells[0], other, *cells[1:]), (joint(),), means, (lost,))


def decoded_dream():
    """A native axis, and the revision extension with a gain that must count nowhere else."""
    native = cell("find", reference="dream", gain=GAINS["guess"])
    apart = cell("find", "commitment", reference="dream", chosen=False, gain=Estimate(0.77, 0.66, 0.88))
    means = (
        mean([native], gain=GAINS["guess"]),
        mean([native], "region", gain=GAINS["guess"]),
        mean([apart], "commitment", gain=Estimate(0.77, 0.66, 0.88)),
    )
    return EndToEndFindings((native, apart), (), means, ())


# Reading what a report says


def words(findings):
    """All sentences of a report."""
    report = study_report(findings)
    return " ".join([*report.warnings, *(answer.text for answer in report.answers), *report.notes])


def answers(findings):
    return [answer.text for answer in study_report(findings).answers]


def rows(sheet):
    """A table as it is read back from CSV."""
    return list(csv.DictReader(table_csv(sheet).splitlines()))


def assert_estimate(row, key, estimate):
    """All digits of an estimate and of its interval are in a row."""
    for end, value in {"": estimate.value, "_low": estimate.low, "_high": estimate.high}.items():
        assert row[key + end] == ("" if isnan(value) else repr(value)), (key, end)
    assert int(row[f"{key}_undefined"]) == estimate.undefined
