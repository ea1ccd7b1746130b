"""A study of version 0.7.0 gives the CSV files of version 0.7.0: every column, every number."""

import pytest

from tests.golden_compare import close
from tests.helpers.stored_study import StoredStudy, parse_csv, stored_csv
from unmask.lab.analysis.detection import detect
from unmask.lab.analysis.end_to_end import end_to_end
from unmask.lab.analysis.findings import Findings
from unmask.lab.analysis.learned import learn
from unmask.lab.analysis.methods import methods
from unmask.lab.analysis.opportunity import measure
from unmask.report.csv import table_csv
from unmask.report.study import study_report

STORED = stored_csv()


@pytest.fixture(scope="module")
def made():
    """The CSV files that today's code makes of the stored tables."""
    store = StoredStudy()
    e1 = measure(store)
    e23 = detect(store, e1)
    found = Findings(e1, e23, end_to_end(store, e1, e23), methods(store, e1), learn(store, e23))
    sheets = [sheet for section in study_report(found).sections for sheet in section.sheets]
    return {f"{sheet.name}.csv": parse_csv(table_csv(sheet)) for sheet in sheets}


def test_the_same_files(made):
    assert sorted(made) == sorted(STORED)


@pytest.mark.parametrize("name", STORED)
def test_columns_and_numbers(made, name):
    (heads, rows), (old_heads, old_rows) = made[name], STORED[name]
    assert heads == old_heads
    assert len(rows) == len(old_rows)
    for at, head in enumerate(heads):
        for row, (new, old) in enumerate(zip(rows, old_rows, strict=True)):
            assert equal(new[at], old[at]), f"{head} of row {row}: {old[at]} -> {new[at]}"


def equal(new, old):
    """Texts and whole numbers are equal, floats within the tolerance of the golden dump."""
    if new == old:
        return True
    try:
        return "." in old and close(float(new), float(old))
    except ValueError:
        return False
