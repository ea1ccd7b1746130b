"""A report as plain values, for JSON."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from unmask.report.report import Report
from unmask.report.sheet import AnySheet
from unmask.stats import Estimate


def document(report: Report) -> dict[str, Any]:
    """Everything; None where there is no number."""
    return {
        "study": report.study,
        "complete": report.complete,
        "warnings": list(report.warnings),
        "answer": [vars(answer) for answer in report.answers],
        "notes": list(report.notes),
        "unreliable_below": report.unreliable_below,
        "resamples": report.resamples,
        "tables": {sheet.name: _records(sheet) for sheet in report.sheets},
        "hashes": dict(report.hashes),
        "manifest": report.manifest,
    }


def _records(sheet: AnySheet) -> list[dict[str, Any]]:
    keys = [column.key for column in sheet.columns]
    return [{key: plain(value) for key, value in zip(keys, row, strict=True) if key is not None} for row in sheet.rows]


def plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity."""
    if isinstance(value, Estimate):
        ends = {end: plain(getattr(value, end)) for end in ("value", "low", "high")}
        return {**ends, "undefined": value.undefined}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
