"""Reading findings in tests: one number or text by where it is."""

from math import isnan


def fact(found, experiment, measure, **where):
    """The number of one row of the findings' frame, or its text where it has none."""
    rows = found.select(experiment, measure=measure, **({"arm": "", "at": ""} | where))
    assert len(rows) == 1, (experiment, measure, where, len(rows))
    row = rows.iloc[0]
    return row["note"] if isnan(row["value"]) else row["value"]


def reasons(found, experiment, *keys):
    """Why settings have no numbers, by the values of some columns."""
    rows = found.select(experiment, measure="missing")
    return {tuple(row[key] for key in keys): row["note"] for row in rows.to_dict("records")}
