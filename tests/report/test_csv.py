"""Tables as CSV."""

import csv
import io

from tests.helpers import made_findings, made_reports
from unmask.report.csv import records_csv, table_csv
from unmask.report.study import study_report


def test_all_digits_and_empty_cells():
    rows = list(csv.reader(io.StringIO(table_csv(made_reports.fruit()))))
    assert rows == [
        ["name", "eaten", "taste", "taste_low", "taste_high", "taste_undefined", "ripe"],
        ["apple & pear", "12345", "0.5", "0.25", "0.75", "2", "true"],
        ["50 %_|off|\nplums", "3", "", "", "", "", "false"],
        ["", "0", "-0.125", "-0.5", "", "0", "true"],
    ]


def test_records():
    assert records_csv(("eaten", "name"), made_reports.FRUIT[:1]) == "eaten,name\n12345,apple & pear\n"


def test_heads_do_not_depend_on_the_rows(known_report, tmp_path):
    nothing = study_report(made_findings.nothing(tmp_path))
    for one, other in zip(known_report.sheets, nothing.sheets, strict=True):
        assert table_csv(one).splitlines()[0] == table_csv(other).splitlines()[0]
