"""The paper's numbers beside ours, each with the line of the paper's source that it was typed from."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from unmask.lab.analysis import Findings
from unmask.lab.analysis.load import MEAN
from unmask.lab.analysis.runs import CHOSEN_AXIS, GAIN
from unmask.lab.analysis.steps import pair_name

SOURCE = Path(__file__).parent / "paper.json"
MACRO = "macro"
"""Stands in place of a task: the mean over the ten tasks."""
_ENDS = {"value": "ours", "low": "ours_low", "high": "ours_high", "undefined": "ours_undefined"}


class PaperNumber(NamedTuple):
    """One number of one table."""

    model: str
    """As `unmask models` lists it."""
    task: str
    axis: str
    """Or "chosen": for each task the one that validation chose."""
    quantity: str
    """`positive_rate`, `captured_10`, `selective`, ...; shares are of 1."""
    value: float
    line: int


def paper_numbers() -> tuple[PaperNumber, ...]:
    """Return every number, in the order of the paper."""
    return tuple(PaperNumber(*row) for row in _content()["rows"])


def paper_model(name_or_hub_id: str) -> str | None:
    """Return the paper's model that was loaded under this name or hub id; None where it is none of them."""
    models = _content()["models"]
    return next((name for name, hub_id in models.items() if name_or_hub_id in (name, hub_id)), None)


@cache
def _content() -> dict[str, Any]:
    return dict(json.loads(SOURCE.read_text(encoding="utf-8")))


_MEASURES: dict[str, tuple[str, str, Any]] = {
    "positive_rate": ("opportunity", "positive_rate", ""),
    "bidirectional": ("opportunity", "bidirectional", ""),
    "auroc": ("diagnostics", "auroc", ""),
    "spearman": ("diagnostics", "spearman", ""),
    **{arm: ("arms", "utility", arm) for arm in ("reference", "fixed", "stage", "always", "selective")},
    "delta": ("arms", "difference", pair_name(*GAIN)),
    "coverage": ("arms", "coverage", "selective"),
}
"""Experiment, measure and arm of the paper's quantities."""
_AT_COVERAGE = {"lift": "ranked_lift"}
"""Measures of E3 that are not called as the paper's quantity; theirs end in the coverage in per cent."""


def compare_with_paper(findings: Findings) -> pd.DataFrame:
    """Return a row for every number that both have: the paper's, ours with its interval, and the paper's line."""
    rows: list[pd.DataFrame] = []
    for spec in findings.study.config["models"]:
        source = paper_model(str(spec.get("options", {}).get("path") or spec["model"]))
        numbers = [x for x in paper_numbers() if x.model == source] if source else []
        own = findings.frame[findings.frame["model"] == spec["name"]]
        for theirs in numbers:
            ours = _find(own, theirs)[["diagnostic", *_ENDS]].rename(columns=_ENDS)
            if theirs.task == MACRO:
                ours["diagnostic"] = ""
            keys = {"model": spec["name"], "task": theirs.task, "axis": theirs.axis, "quantity": theirs.quantity}
            rows.append(ours.assign(**keys, paper=theirs.value, line=theirs.line))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()


def _find(own: pd.DataFrame, theirs: PaperNumber) -> pd.DataFrame:
    """Rows of the same quantity; several where an axis has several diagnostics."""
    name, _, coverage = theirs.quantity.rpartition("_")
    experiment, measure, arm = _MEASURES.get(theirs.quantity, ("diagnostics", _AT_COVERAGE.get(name, name), ""))
    at: Any = "" if theirs.quantity in _MEASURES else int(coverage) / 100 if coverage.isdigit() else None
    if at is None:
        return own[:0]
    task, axis = (MEAN, CHOSEN_AXIS) if theirs.task == MACRO else (theirs.task, theirs.axis)
    rows = own[
        (own["experiment"] == experiment) & (own["measure"] == measure) & (own["arm"] == arm) & (own["at"] == at)
    ]
    rows = rows[(rows["task"] == task) & (rows["axis"] == axis)]
    return rows[rows["proposal"].isin(["", "raw"])]
