"""Numbers with intervals on the page of findings are rows of the committed tables."""

import csv
import re

from tests.helpers.paths import DOCS, RESULTS

TRIPLE = re.compile(r"([-+]?\d\.\d+) \[([-+]?\d\.\d+), ([-+]?\d\.\d+)\]")


def committed_triples(digits):
    """Value and ends of every interval in the tables of the studies, rounded as the page rounds them."""
    triples = set()
    for path in RESULTS.glob("mini*/*.csv"):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                for name in row:
                    ends = [row.get(column) for column in (name, f"{name}_low", f"{name}_high")]
                    if all(ends):
                        triples.add(tuple(round(float(end), digits) + 0.0 for end in ends))
    return triples


def test_every_interval_is_a_row_of_a_table():
    found = TRIPLE.findall((DOCS / "findings.md").read_text(encoding="utf-8"))
    assert len(found) > 20
    missing = []
    for digits in (3, 4):
        committed = committed_triples(digits)
        here = [one for one in found if len(one[0].lstrip("+-")) == digits + 2]
        missing += [one for one in here if tuple(round(float(end), digits) + 0.0 for end in one) not in committed]
    assert missing == []
