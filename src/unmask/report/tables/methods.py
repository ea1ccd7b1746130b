"""The tables of the policy axis: one method, one for each stage, and what the methods' own steps take."""

from collections.abc import Callable
from operator import attrgetter

from unmask.lab.analysis.methods import ARMS, MethodCost, MethodsCell, MethodsFindings
from unmask.report.formats import number, point
from unmask.report.sheet import AnySheet, Column, Sheet, Value, attribute
from unmask.report.tables.shared import STAGE_NAMES, counts, missing_sheet, named, notes

_HEADS = {"reference": "Ref.", "fixed": "Fixed", "stage": "Stage", "oracle": "Oracle"}
_PAIRS = {
    "fixed_gain": (("fixed", "reference"), "Fixed − Ref."),
    "stage_gain": (("stage", "fixed"), "Stage − Fixed"),
    "oracle_gain": (("oracle", "fixed"), "Oracle − Fixed"),
}


def sheets(findings: MethodsFindings) -> tuple[AnySheet, ...]:
    """In the order of the page."""
    return (
        arms_sheet(findings),
        cost_sheet(findings),
        missing_sheet("methods-missing", "Without numbers", "", findings.missing, "None."),
    )


def arms_sheet(findings: MethodsFindings) -> AnySheet:
    columns: tuple[Column[MethodsCell], ...] = (
        *named("model", "task"),
        attribute("fixed_method", "fixed method", path="fixed_name", left=True),
        *(Column(f"stage_{k}", STAGE_NAMES[k], _stage(k), left=True) for k in range(len(STAGE_NAMES))),
        *(Column(arm, _HEADS[arm], _utility(arm), number) for arm in ARMS),
        *(Column(key, head, _difference(pair), number, wide=True) for key, (pair, head) in _PAIRS.items()),
        *notes(lambda cell: cell, attrgetter("partial")),
        *counts("prompts", "states"),
    )
    return Sheet(
        "methods",
        "Whole methods, one transition",
        "A method acts for one transition, then the reference goes on. Fixed: the method that is best on validation "
        "states; Stage: the best of each quarter of the masked share, whose names stand under it; Oracle: each "
        "state's best, cross-fitted. Mean utilities of evaluation states, differences paired over prompts. What "
        "methods take is not in them: see the next table. E2 to E4 leave this axis out, for it has no diagnostic.",
        columns,
        findings.cells,
        empty="Nothing could be measured; the reasons are below.",
    )


def _stage(stage: int) -> Callable[[MethodsCell], Value]:
    return lambda cell: cell.stage_names[stage]


def _utility(arm: str) -> Callable[[MethodsCell], Value]:
    return lambda cell: cell.utility[arm]


def _difference(pair: tuple[str, str]) -> Callable[[MethodsCell], Value]:
    return lambda cell: cell.difference[pair]


def cost_sheet(findings: MethodsFindings) -> AnySheet:
    columns: tuple[Column[MethodCost], ...] = (
        *named("model", "task", "method"),
        *counts("branches"),
        attribute("extra_forwards", "extra forwards", point),
        attribute("extra_tokens", "extra tokens", point),
    )
    return Sheet(
        "methods-cost",
        "What a method's own step takes",
        "On average over branches, beside one pass over the canvas: looks ahead, as decoding counts them, and slots "
        "that those and views with slots of their own read.",
        columns,
        findings.costs,
    )
