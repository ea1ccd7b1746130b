"""The tables of what a study has, what it lacks, what it cost and what it was made with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.axes import STUDY_AXES
from unmask.lab.analysis.completeness import Extent
from unmask.lab.analysis.opportunity import Cost, OpportunityFindings
from unmask.report.formats import count, seconds, text_or_none
from unmask.report.sheet import AnySheet, Column, Sheet, attribute
from unmask.report.tables.shared import counts, missing_sheet, named

ALL = "all"
"""In place of an axis: the whole of a model's work."""


def sheets(findings: OpportunityFindings) -> tuple[AnySheet, ...]:
    """In the order of the page."""
    return (
        missing_sheet(
            "missing",
            "Without numbers",
            "Models, tasks and axes of the study that nothing is reported on.",
            findings.missing,
            "None: every model, task and axis has numbers.",
        ),
        unjudged_sheet(findings),
        extent_sheet(findings),
        cost_sheet(findings),
        models_sheet(findings),
    )


def unjudged_sheet(findings: OpportunityFindings) -> AnySheet:
    return Sheet(
        "unjudged",
        "Utilities that are missing",
        "Branches whose answer the evaluator could not judge. They are left out, not counted as 0; a state whose "
        "fixed action is among them is excluded.",
        (
            *named("model", "task", "split", "axis"),
            *counts("branches"),
            attribute("reason", "reason", text_or_none, left=True),
        ),
        findings.unjudged,
        empty="None: every branch was judged.",
    )


def extent_sheet(findings: OpportunityFindings) -> AnySheet:
    mixed = len({code for extent in findings.extents for code in extent.code}) > 1
    note = "Fewer prompts than asked for in finished shards: the task has no more, or they do not fit into the model."
    said = " Its shards were made with more than one state of the code, which the user accepted: see the fingerprints."
    code: Column[Extent] = Column("code", "code", lambda extent: " ".join(extent.code), left=True)
    return Sheet(
        "extent",
        "What is finished",
        note + said if mixed else note,
        (
            *named("model", "task", "split"),
            *counts("shards"),
            attribute("planned", "of", count),
            *counts("prompts"),
            attribute("asked", "asked for", count),
            *counts("states"),
            *([code] if mixed else []),
        ),
        findings.extents,
    )


@dataclass(frozen=True)
class CostRow:
    """The work of one model on one axis, or on all of them."""

    cost: Cost
    axis: str

    @property
    def work(self) -> Any:
        forwards = self.cost.forwards
        return forwards.total if self.axis == ALL else forwards.axes[self.axis]


def _cost_rows(findings: OpportunityFindings) -> Iterator[CostRow]:
    for cost in findings.costs:
        for axis in (*(axis for axis in STUDY_AXES if axis in cost.forwards.axes), ALL):
            yield CostRow(cost, axis)


def cost_sheet(findings: OpportunityFindings) -> AnySheet:
    columns: tuple[Column[CostRow], ...] = (
        *named("model", path="cost."),
        *named("axis"),
        *counts("branches", "naive", "done", path="work."),
        attribute("rollouts", "saved: identical rollouts", count, path="work.rollouts"),
        attribute("first", "first transitions", count, path="work.first"),
        attribute("futures", "merged futures", count, path="work.futures"),
        # Not counted by axis.
        Column("trajectory", "reference runs", lambda row: _of_all(row, row.cost.forwards.trajectory), count),
        Column("recalled", "recalled", lambda row: _of_all(row, row.cost.forwards.recalled), count),
        Column("calls", "passes", lambda row: _of_all(row, row.cost.forwards.calls), count),
        Column("seconds", "seconds", lambda row: _of_all(row, row.cost.seconds), seconds),
    )
    return Sheet(
        "cost",
        "What it cost",
        "Row-forwards. Naive: every branch for itself; done and saved add up to it. On top come the reference's own "
        "runs and previous posteriors that were computed again (recalled). A pass is one forward of a whole batch.",
        columns,
        list(_cost_rows(findings)),
    )


def _of_all(row: CostRow, value: float) -> float | None:
    return value if row.axis == ALL else None


def models_sheet(findings: OpportunityFindings) -> AnySheet:
    heads = {
        "model": "name here",
        "loaded": "loaded from",
        "reference": "reference update",
        "family": "architecture",
        "fingerprint": "weights",
        "device": "device",
        "dtype": "dtype",
    }
    return Sheet(
        "models",
        "Models",
        "Numbers belong to the weights named here. Reference update and architecture name a rule and a construction, "
        "not a published model.",
        tuple(_entry(key, head) for key, head in heads.items()),
        [_about(findings.manifest, spec) for spec in findings.manifest["study"]["models"]],
    )


def _entry(key: str, head: str) -> Column[Mapping[str, Any]]:
    return Column(key, head, lambda about: about[key], text_or_none, left=True)


def _about(manifest: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """One model: what the study file asked for, and what was loaded."""
    loaded = manifest["models"].get(spec["name"], {})
    options = {**spec.get("options", {}), **loaded.get("options", {})}
    return {
        "model": spec["name"],
        "loaded": spec["model"],
        "reference": spec["reference"],
        "family": options.get("family"),
        "fingerprint": options.get("fingerprint"),
        "device": loaded.get("device"),
        "dtype": options.get("dtype"),
    }
