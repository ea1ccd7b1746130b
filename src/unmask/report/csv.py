"""Tables as CSV: every value with all digits."""

import csv
import io
from collections.abc import Sequence
from math import isnan

from unmask.report.sheet import AnySheet, Sheet, Value, attribute
from unmask.stats import Estimate

_ENDS = ("", "_low", "_high", "_undefined")


def table_csv(sheet: AnySheet) -> str:
    """The columns that files have; an empty cell where there is no value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kept = [(at, column) for at, column in enumerate(sheet.columns) if column.key is not None]
    writer.writerow([f"{c.key}{end}" for _, c in kept for end in (_ENDS if c.wide else _ENDS[:1])])
    for row in sheet.rows:
        writer.writerow([cell for at, column in kept for cell in _cells(row[at], column.wide)])
    return text.getvalue()


def records_csv(keys: Sequence[str], records: Sequence[object]) -> str:
    """A row for each record, a column for each of these attributes."""
    return table_csv(Sheet("", "", "", tuple(attribute(key, None) for key in keys), records))


def _cells(value: Value, wide: bool) -> Sequence[str]:
    if isinstance(value, Estimate):
        return [*(_digits(x) for x in (value.value, value.low, value.high)), str(value.undefined)]
    return [_digits(value) if isinstance(value, float) else _plain(value), *[""] * (3 * wide)]


def _digits(value: float) -> str:
    return "" if isnan(value) else repr(value)


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
