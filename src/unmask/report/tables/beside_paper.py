"""The paper's numbers beside ours, where model and task are the same. Of any other model there is nothing to show."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.lab.analysis.detection import DetectionCell
from unmask.lab.analysis.end_to_end import CHOSEN, EndToEndCell, EndToEndMean
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.opportunity import OpportunityCell
from unmask.report.formats import count, number
from unmask.report.paper import MACRO, PaperNumber, paper_model, paper_numbers
from unmask.report.sheet import AnySheet, Sheet, Value, attribute
from unmask.report.tables.shared import named

_ARMS = ("reference", "fixed", "stage", "always", "selective")
_AT_COVERAGE = {
    "captured": "captured",
    "concentration": "concentration",
    "lift": "ranked_lift",
    "random_captured": "random_captured",
    "oracle_lift": "oracle_lift",
}
"""Quantities of the paper with a coverage, and our measures."""


@dataclass(frozen=True)
class BesidePaper:
    """A number of the paper, and ours of the same model, task and axis."""

    model: str
    """As the study calls it."""
    diagnostic: str
    """Empty where none has a part in the number."""
    theirs: PaperNumber
    ours: Value


def beside_paper_sheet(findings: Findings) -> AnySheet:
    return Sheet(
        "paper",
        "Beside the paper",
        "Numbers of the paper's tables, each with the line of its source that it was typed from, and ours of the same "
        "checkpoint, task and axis. Prompts, steps, candidates and scoring need not be the paper's, which does not say "
        "all of them. Its numbers have no intervals in these tables.",
        (
            *named("model"),
            *named("task", "axis", path="theirs."),
            *named("diagnostic"),
            *named("quantity", path="theirs."),
            attribute("paper", "paper", number, path="theirs.value"),
            attribute("ours", "ours", number, wide=True),
            attribute("line", "line", count, path="theirs.line"),
        ),
        list(beside_paper(findings)),
        empty="None: no model of this study is one of the paper's.",
    )


def beside_paper(findings: Findings) -> Iterator[BesidePaper]:
    """All numbers that both have, in the paper's order."""
    for model, source in _same_models(findings.opportunity.manifest).items():
        for theirs in paper_numbers():
            if theirs.model == source:
                for diagnostic, ours in _ours(findings, model, theirs):
                    yield BesidePaper(model, diagnostic, theirs, ours)


def _same_models(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The study's models that were loaded from a published checkpoint, by the name of that."""
    same = {}
    for spec in manifest["study"]["models"]:
        loaded = paper_model(str(spec.get("options", {}).get("path") or spec["model"]))
        if loaded is not None:
            same[str(spec["name"])] = loaded
    return same


def _ours(findings: Findings, model: str, theirs: PaperNumber) -> Iterator[tuple[str, Value]]:
    """With the diagnostic's name; several where an axis has several."""
    detection, end_to_end = findings.detection, findings.end_to_end
    if theirs.task == MACRO:
        means = () if end_to_end is None else end_to_end.means
        yield from (("", _whole(m, theirs.quantity)) for m in means if (m.model, m.axis) == (model, CHOSEN))
        return
    key = (model, theirs.task, theirs.axis)
    for one in findings.opportunity.cells:
        if (one.model, one.task, one.axis) == key and (value := _opportunity(one, theirs.quantity)) is not None:
            yield "", value
    for read in () if detection is None else detection.cells:
        if (read.model, read.task, read.axis) == key and (value := _detected(read, theirs.quantity)) is not None:
            yield read.diagnostic, value
    for run in () if end_to_end is None else end_to_end.cells:
        if (run.model, run.task, run.axis) == key and (value := _whole(run, theirs.quantity)) is not None:
            yield run.diagnostic, value


def _opportunity(cell: OpportunityCell, quantity: str) -> Value:
    return cell.overall[quantity] if quantity in ("positive_rate", "bidirectional") else None


def _detected(cell: DetectionCell, quantity: str) -> Value:
    name, _, coverage = quantity.rpartition("_")
    if name in _AT_COVERAGE:
        return cell.raw.measures[_AT_COVERAGE[name], int(coverage) / 100]
    return cell.raw.measures[quantity] if quantity in ("auroc", "spearman") else None


def _whole(run: EndToEndCell | EndToEndMean, quantity: str) -> Value:
    if quantity in _ARMS:
        return run.utility[quantity]
    if quantity == "delta":
        return run.difference["selective", "fixed"]
    if quantity != "coverage":
        return None
    return run.coverage["selective"] if isinstance(run, EndToEndCell) else run.coverage
